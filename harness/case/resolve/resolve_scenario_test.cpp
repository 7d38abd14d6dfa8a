#include "case/resolve/resolve_scenario.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve.hpp"
#include "testing/checkout.hpp"

namespace kvcts {
namespace {

const catalogue::Catalogue& catalogue() {
  static const catalogue::Catalogue instance(checkout::source() + "/cases");
  return instance;
}

constexpr const char* head = R"(
case: t/script
dtype: fp16
geometry: {layers: 2, blocks: 5, block_size: 4, heads: 2, head_dim: 16}
memory:
  P: {side: producer, layout: vllm-fa-nhd}
  C: {layout: vllm-fa-hnd, geometry: {block_size: 8, blocks: 3}}
  S: {side: staging, bytes: 4096}
  B: {side: staging, bytes: 0x200000000, sparse: true}
requests:
  A: {tokens: 8, blocks: {P: [3, 0], C: [1]}}
  H: {tokens: 5000000}
  W: {tokens: 16, blocks: {P: [3, 0]}, positions: {P: [0, 3]}}
steps:
)";

ResolvedCase resolved(const std::string& steps) {
  return resolve(catalogue::parse_cases(head + steps, "f.yaml", &catalogue())[0], catalogue());
}

std::string error_of(const std::string& steps) {
  try {
    resolved(steps);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

layout::Cache cache_of(const std::string& view) {
  const auto c = resolved("  - move: {request: A, from: P, to: " + view + ", from_blocks: [0, 1], to_blocks: [0, 1]}\n");
  return layout::cache_from_text(c.scenario.steps[0].intended.to[0].cache);
}

TEST(ResolveScenario, ViewsInheritFromTheMemoryUnlessOverridden) {
  const auto c = resolved("  - move: {request: A, from: P, to: C}\n");
  EXPECT_EQ(c.performer, Performer::machine);
  const auto& move = c.scenario.steps[0].intended;
  EXPECT_EQ(move.from[0].cache, c.scenario.memories.at("P").view.cache);
  EXPECT_EQ(move.to[0].cache, c.scenario.memories.at("C").view.cache);
  const auto p = layout::cache_from_text(move.from[0].cache), q = layout::cache_from_text(move.to[0].cache);
  EXPECT_EQ(p.allocations.size(), 2U);
  EXPECT_EQ(p.allocations[0].bytes, 2 * 5 * 4 * 2 * 16 * 2);
  EXPECT_EQ(layout::domain(q.planes[0]).hi[layout::Axis::slot], 8);
  EXPECT_EQ(layout::domain(q.planes[0]).hi[layout::Axis::block], 3);
}

TEST(ResolveScenario, AViewOverridesLayoutGeometryDtypeStridesAndPlanes) {
  const auto p = cache_of("P");
  EXPECT_EQ(layout::order(cache_of("{of: P, layout: vllm-fa-hnd}").planes[0]), "KBHNC");
  EXPECT_EQ(layout::order(cache_of("{of: P, layout: \"flashinfer:NHD\"}").planes[0]), "BKNHC");
  EXPECT_EQ(layout::order(cache_of("{of: P, template: \"L x B H K N C\"}").planes[0]), "BHKNC");
  EXPECT_EQ(cache_of("{of: P, dtype: bf16}").planes[0].dtype, layout::Dtype::bf16);
  EXPECT_EQ(layout::domain(cache_of("{of: P, geometry: {blocks: 10, block_size: 2}}").planes[0]).hi[layout::Axis::block],
            10);
  const auto strided = cache_of("{of: P, strides: {block: 640}}");
  for (const auto& mode : strided.planes[0].modes) {
    if (mode.axis == layout::Axis::block) {
      EXPECT_EQ(mode.stride, 640 * 8);
    }
  }
  EXPECT_EQ(strided.allocations, p.allocations);
  const auto planes =
      cache_of("{of: S, planes: \"data fp16 a0+0 [B=2:512 N=4:128 K=2:64 H=2:32 C=16:2]\\nallocation x 4096\"}");
  EXPECT_EQ(planes.planes.size(), 1U);
}

TEST(ResolveScenario, AnAllocationSelectsItsPlanes) {
  const auto one = cache_of("P/kv.L1");
  ASSERT_EQ(one.allocations.size(), 1U);
  EXPECT_EQ(one.planes[0].origin[layout::Axis::layer], 1);
  EXPECT_EQ(one.planes[0].allocation, 0);
  EXPECT_NE(error_of("  - move: {request: A, from: P/kv.L7, to: C}\n")
                .find("'P' has no allocation 'kv.L7'; there are P/kv.L0, P/kv.L1"),
            std::string::npos);
}

TEST(ResolveScenario, ErrorsInNamesAndNumbersNameTheStep) {
  const auto has = [](const std::string& steps, const std::string& part) {
    const std::string error = error_of(steps);
    EXPECT_NE(error.find(part), std::string::npos) << steps << error;
    EXPECT_NE(error.find("'t1'"), std::string::npos) << error;
  };
  has("  - move: {name: t1, request: A, from: P, to: {of: C, layout: vllm-fa-hdn}}\n",
      "in the catalogue there is 'vllm-fa-hnd'");
  has("  - move: {name: t1, request: A, from: P, to: {of: C, dtype: fp17}}\n", "fp16");
  has("  - move: {name: t1, request: A, from: P, to: {of: C, dtype: fp8_e4m3}}\n", "a move keeps bits");
  has("  - move: {name: t1, request: A, from: P, to: C, actually: {from: {of: P, dtype: fp8_e4m3}}}\n",
      "step 't1', actually: 'C' has data in codes of 16 bits");
  has("  - move: {name: t1, request: A, from: P, to: S}\n", "'S' is raw bytes; say through which layout");
  has("  - move: {name: t1, request: A, from: P, to: C, to_blocks: [3]}\n", "expected ids in 0..2");
  has("  - write: {name: t1, request: W, to: C}\n", "add blocks: {C: [...]} to it");
  has("  - move: {name: t1, request: A, from: P, to: {of: P, template: \"K x L x B N H C\"}}\n",
      "name one of them (P/kv.L0, P/kv.L1)");
  has("  - move: {name: t1, request: A, from: P, to: {of: P, strides: {layer: 64}}}\n", "no data plane has a layer axis");
  has("  - copy: {name: t1, from: P, to: S, bytes: 4}\n", "'P' has 2 allocations; name one: P/kv.L0, P/kv.L1");
  has("  - register: {name: t1, memory: P, offset: 4, bytes: 8}\n", "'P' has 2 allocations");
  has("  - unpack: {name: t1, memory: S, expects: [blocks]}\n", "shows no tensor");
  has("  - require: {name: t1, about: capability, needs: {cc: 80, tmaa: true}}\n", "found 'tmaa'; did you mean 'tma'?");
  has("  - assign: {request: A, blocks: {P: [1]}}\n  - write: {name: t1, request: A, to: P}\n",
      "has 1 blocks of 4 in memory 'P', which cannot hold 8 tokens");
  EXPECT_EQ(error_of("  - write: {request: W, to: P}\n"), "");  // positions list the blocks
  EXPECT_EQ(error_of("  - assign: {request: A, tokens: 4, blocks: {P: [1]}}\n  - write: {request: A, to: P}\n"), "");
  EXPECT_EQ(error_of("  - move: {request: A, from: P, to: C, actually: {to_blocks: [77]}}\n"), "");  // data under test
}

TEST(ResolveScenario, RefusesBlocksAndFillsBeyondTheirBounds) {
  EXPECT_EQ(error_of("  - read: {request: W, from: P, tokens: 0}\n"), "");
  EXPECT_NE(error_of("  - read: {request: H, from: P, from_blocks: [0]}\n").find("at most 4194304"), std::string::npos);
  EXPECT_NE(error_of("  - fill: {to: B, value: zero}\n").find("'B' is sparse, and exists only where it is touched"),
            std::string::npos);
  EXPECT_EQ(error_of("  - fill: {to: B, to_offset: 0x100000000, bytes: 64, value: zero}\n"), "");
}

TEST(ResolveScenario, BoundsNumbersBeforeAllocating) {
  const auto has = [](const std::string& steps, const std::string& part) {
    EXPECT_NE(error_of(steps).find(part), std::string::npos) << steps << error_of(steps);
  };
  has("  - move: {request: A, from: P, to: C, actually: {to: {of: C, strides: {block: 1048576}}, to_blocks: "
      "[1099511627776]}}\n",
      "expected at most 2^56 bytes");
  has("  - copy: {from: S, to: S, bytes: 4, count: 1048576, from_step: 72057594037927936, to_step: 4}\n",
      "expected at most 2^56 bytes");
  has("  - read: {request: A, from: P, layers: \"0..1000\", heads: \"0..1000\", channels: \"0..1000\"}\n",
      "an output of 1000000000 elements");
  has("  - write: {request: A, to: {of: P, geometry: {heads: 1000000000}}}\n",
      "elements of 'P' in one step: expected at most 2^27");
}

TEST(Resolve, DrawsBlocksOfLargePoolsOrRefuses) {
  const auto resolve_with = [](const std::string& geometry) {
    return resolve(catalogue::parse_cases("case: t/pool\nproducer: {template: \"L x K B N H C\"}\nconsumer: {template: \"L "
                                          "x K B N H C\"}\ngeometry: {block_size: 4, head_dim: 16, " +
                                              geometry + "}\n",
                                          "f.yaml", &catalogue())[0],
                   catalogue());
  };
  const auto large = resolve_with("layers: 1, heads: 1, tokens: 40, blocks: 1000000000000");
  EXPECT_GT(memory_needed(large), std::int64_t{1} << 46);
  const auto& ids = large.groups[0].requests[0].producer_blocks;
  EXPECT_EQ(ids.size(), 10U);
  EXPECT_EQ(std::set<std::int64_t>(ids.begin(), ids.end()).size(), 10U);
  EXPECT_EQ(ids[1], 0);
  const auto error = [&](const std::string& geometry) -> std::string {
    try {
      resolve_with(geometry);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error("layers: 1, tokens: 40, blocks: 1099511627776, heads: 1099511627776").find("64-bit overflow"),
            std::string::npos);
  EXPECT_NE(error("layers: 1, heads: 1, tokens: 1000000000000, blocks: 1099511627776").find("expected at most 4194304"),
            std::string::npos);
  EXPECT_NE(error("heads: 1, tokens: 40, blocks: 99, layers: 1000000000").find("allocations"), std::string::npos);
}

TEST(Resolve, GrantsTheSandboxWhatEngineAndConnectorNeed) {
  const auto granted = [](const std::string& rest) {
    return resolve(
               catalogue::parse_cases(
                   "case: t/grants\ngeometry: small\nproducer: {layout: vllm-fa-nhd}\nconsumer: {layout: vllm-fa-nhd}\n" +
                       rest,
                   "f.yaml", &catalogue())[0],
               catalogue())
        .grants;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(granted("engine: memcpy\n"), Names());
  EXPECT_EQ(granted("engine: ucx-1.22-cma\n"), (Names{"process-vm", "sys"}));
  EXPECT_EQ(granted("engine: own\nconnector: real-vllm-0.33.0-nixl\n"), (Names{"network", "sys"}));
}

TEST(ResolveScenario, FillsInArchFactsDimsAndWholeRanges) {
  const auto c = resolved(
      "  - require: {about: capability, needs: {cc: 89, bf16: true}}\n"
      "  - unpack: {memory: P, expects: [two, blocks, slots, heads, channels]}\n"
      "  - fill: {to: S, to_offset: 96, value: zero}\n");
  EXPECT_EQ(c.scenario.steps[0].intended.has, (nlohmann::json{{"cc", 0}, {"bf16", true}}));
  EXPECT_EQ(c.scenario.steps[1].intended.found, (nlohmann::json{2, 5, 4, 2, 16}));
  EXPECT_EQ(c.scenario.steps[2].intended.bytes, 4000);
}

TEST(ResolveScenario, SizesMemoryByItsStrides) {
  const auto c = resolve(catalogue::parse_cases("case: t/x\ngeometry: tiny\nmemory: {P: {template: \"B N C\", geometry: "
                                                "{kv: 1, heads: 1, layers: 1}, strides: {block: 1024}}}\n"
                                                "steps: [check]\n",
                                                "f.yaml")[0],
                         catalogue());
  const auto cache = layout::cache_from_text(c.scenario.memories.at("P").view.cache);
  EXPECT_EQ(cache.allocations[0].bytes, 4 * 1024 + 4 * 32 * 2);
}

TEST(ResolveScenario, IsSerializedAndDigested) {
  const auto c =
      resolved("  - write: {request: A, to: P}\n  - move: {request: A, from: P, to: C, actually: {to_blocks: [2]}}\n");
  const auto again = case_from_json(nlohmann::json::parse(to_json(c).dump()));
  EXPECT_EQ(again.scenario, c.scenario);
  EXPECT_EQ(digest(again), digest(c));
  EXPECT_EQ(c.facts.value("scripted", false), true);
  EXPECT_GT(memory_needed(c), 8 * 2 * 2 * 5 * 4 * 2 * 16 * 2);
  auto changed = c;
  changed.scenario.steps[1].actual[0].to_blocks->at(0) = 0;
  EXPECT_NE(digest(changed), digest(c));
  EXPECT_FALSE(worker_view(c).contains("script"));
}

std::vector<std::string> sound_scenarios() {
  std::vector<std::string> texts{std::string(head) +
                                 "  - write: {request: A, to: P}\n  - move: {request: A, from: P, to: {of: C, strides: "
                                 "{block: 64}}, layers: \"0..2\", actually: {to_blocks: [2]}}\n"};
  for (const char* file : {"content", "layout", "time"}) {
    std::ifstream in(checkout::source() + "/cases/faults/" + file + ".yaml");
    std::ostringstream text;
    text << in.rdbuf();
    EXPECT_FALSE(text.str().empty()) << file;
    texts.push_back(text.str());
  }
  return texts;
}

void damage(std::string& text, const std::function<std::size_t(std::size_t)>& any) {
  static const std::vector<std::string> odd{"-1",   "0",        "4611686018427387904", "{",  "]", "P", "\"0..9\"",
                                            "null", "99999999", "actually: skipped",   ": ", "K"};
  const std::size_t at = any(text.size()), digit = text.find_first_of("0123456789", at), kind = any(4);
  if (kind == 0)
    text.erase(at, any(8) + 1);
  else if (kind == 1)
    text.insert(at, odd[any(odd.size())]);
  else if (digit != std::string::npos)
    text.replace(digit, 1, odd[any(odd.size())]);
}

// Damaged scenarios yield a case or one clear error; a case travels whole.
TEST(ResolveScenario, DamagedScenariosParseOrGiveOneError) {
  const std::vector<std::string> texts = sound_scenarios();
  std::mt19937 rng(7);
  const auto any = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(rng); };
  int resolved_cases = 0, refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = texts[any(texts.size())];
    for (std::size_t k = 0; k <= any(3); ++k) damage(text, any);
    try {
      for (const auto& spec : catalogue::parse_cases(text, "f.yaml", &catalogue())) {
        const auto c = resolve(spec, catalogue());
        ASSERT_EQ(case_from_json(nlohmann::json::parse(to_json(c).dump())).scenario, c.scenario);
        ++resolved_cases;
      }
    } catch (const std::exception& e) {
      ++refused;
      const std::string what = e.what();
      ASSERT_FALSE(what.empty());
      ASSERT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
  EXPECT_GT(resolved_cases, 20);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace kvcts
