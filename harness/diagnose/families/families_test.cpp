// Each family of hypotheses is needed: some case is named rightly with it, and not without it. Likewise for packing mistakes
// as changes of a layout: a case's misreading is one of the variants of its memory.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_script.hpp"
#include "diagnose/precedence.hpp"
#include "diagnose/run.hpp"
#include "scene/arena.hpp"
#include "scene/faults/variants.hpp"
#include "testing/checkout.hpp"

namespace kvcts::script {
namespace {

const std::filesystem::path cases = std::filesystem::path(checkout::source()) / "cases";

Script told(const CaseSpec& spec, const catalogue::Catalogue& catalogue) { return resolve_script(spec, catalogue); }

bool named(const Script& script, std::uint64_t seed, FaultClass fault_class) {
  const Diagnosis why = run_script(script, seed).diagnosis;
  return why.exact && why.fault_class == fault_class;
}

CaseSpec case_of(const std::string& file, const std::string& id, const catalogue::Catalogue& catalogue) {
  for (const CaseSpec& spec : catalogue::read_case_file(cases / file, "", &catalogue)) {
    if (spec.id == id) return spec;
  }
  throw std::runtime_error("no case " + id + " in " + file);
}

struct Need {
  const char* family;
  const char* file;
  const char* id;
};

void PrintTo(const Need& need, std::ostream* out) { *out << need.family << " by " << need.id; }

class Families : public testing::TestWithParam<Need> {};

TEST_P(Families, NameWhatNoOtherDoes) {
  const catalogue::Catalogue catalogue(cases);
  const CaseSpec spec = case_of(GetParam().file, GetParam().id, catalogue);
  const Script script = told(spec, catalogue);
  const FaultClass expected = spec.expected.at(0).fault_class;
  EXPECT_TRUE(named(script, spec.seed, expected));
  const WithoutFamily off(GetParam().family);
  EXPECT_FALSE(named(script, spec.seed, expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, Families,
    testing::Values(Need{"several registrations", "field/memory.yaml", "field/registered-in-another-order"},
                    Need{"ids of another unit or time", "field/tables.yaml", "field/wrong-block-zeroed"},
                    Need{"a part of a step", "field/ranks.yaml", "field/replica-ranks-not-served"},
                    Need{"a list of copies", "field/copies.yaml", "field/coalesced-over-padding"},
                    Need{"the same mistake in several steps", "field/ranks.yaml", "field/store-and-load-both-reverse-heads"},
                    Need{"several at another time", "field/times.yaml", "field/layers-sent-before-they-are-computed"},
                    Need{"other ids", "field/tables.yaml", "field/ids-in-one-byte"},
                    Need{"where it went", "field/layouts.yaml", "field/stage-with-the-offset-of-another"},
                    Need{"another time", "museum/sglang-2.yaml", "museum/m121-sglang-33970"},
                    Need{"content where no step puts it", "field/strays.yaml", "field/one-block-more-than-it-has"},
                    Need{"a wrong layout", "field/scales.yaml", "field/scales-sought-behind-the-rope-half"},
                    Need{"part by part", "field/memory.yaml", "field/layer-and-v-region-paired"},
                    Need{"a piece of a step", "field/layouts.yaml", "field/second-layer-with-the-stride-of-one"},
                    Need{"a belief in some steps", "museum/lmcache-1.yaml", "museum/m019-lmcache-2495"}));

// Slower; the family has a quick one above.
INSTANTIATE_TEST_SUITE_P(Nightly, Families,
                         testing::Values(Need{"the same mistake in several steps", "field/ranks.yaml",
                                              "field/batch-with-heads-of-the-other-rank"}));

/// A case written here, and the expected diagnosis.
void expect_needed(const char* family, FaultClass fault_class, const std::string& document) {
  const catalogue::Catalogue catalogue(cases);
  const Script script = told(catalogue::parse_cases(document, family, &catalogue).at(0), catalogue);
  EXPECT_TRUE(named(script, 1, fault_class));
  const WithoutFamily off(family);
  EXPECT_FALSE(named(script, 1, fault_class));
}

/// Of the only case of a document.
Diagnosis diagnosis_of_text(const std::string& text) {
  const catalogue::Catalogue catalogue(cases);
  return run_script(told(catalogue::parse_cases(text, "f.yaml", &catalogue).at(0), catalogue), 1).diagnosis;
}

Diagnosis diagnosis_of(const std::string& requests, const std::string& steps) {
  return diagnosis_of_text(
      "case: t/rivals\ndtype: bf16\ngeometry: {layers: 2, blocks: 8, block_size: 4, heads: 4, head_dim: 16}\n"
      "memory:\n  P: {side: producer, layout: vllm-fa-nhd}\n  C: {layout: vllm-fa-nhd}\nrequests: {" +
      requests + "}\nsteps:\n  - write: {request: A, to: P}\n" + steps);
}

// A failure that is taken for a success makes the repair needless; what it would have brought is missing.
TEST(Families, WhatFollowsFromAReportIsNoSecondCause) {
  const Diagnosis why = diagnosis_of("A: {tokens: 8, blocks: {P: [5, 0], C: [1, 2]}}",
                                     "  - fail: {request: A, actually: [{complete: {request: A}}]}\n"
                                     "  - move: {name: repair, request: A, from: P, to: C, actually: skipped}\n");
  EXPECT_EQ(why.fault_class, FaultClass::false_success);
  EXPECT_TRUE(why.exact);
  EXPECT_NE(why.text.find("so that 'repair' never happened"), std::string::npos) << why.text;
}

// Where the access went says which block was meant, also where it ends the run.
TEST(Families, AnAccessOutsideIsToABlockThatThePoolLacks) {
  const Diagnosis why = diagnosis_of("A: {tokens: 4, blocks: {P: [5], C: [1]}}",
                                     "  - write: {name: put, request: A, to: C, actually: {to_blocks: [40]}}\n");
  EXPECT_EQ(why.fault_class, FaultClass::wrong_block_id) << why.text;
  EXPECT_NE(why.text.find("blocks [40] instead of [1] of C"), std::string::npos) << why.text;
}

// A block arrives in one piece, whatever order its rows are copied in: of the second one half of K and all of V are missing,
// which is no box of any step.
TEST(Families, ABlockIsCutShort) {
  const std::string text =
      "case: t/short\ndtype: bf16\ngeometry: {layers: 2, blocks: 6, block_size: 4, heads: 2, head_dim: 16}\n"
      "memory:\n  P: {side: producer, template: \"B L K N H C\"}\n  C: {template: \"B L K N H C\"}\n"
      "requests: {A: {tokens: 8, blocks: {P: [4, 1], C: [0, 3]}}}\nsteps:\n  - write: {request: A, to: P}\n"
      "  - move: {request: A, from: P, to: C, actually: [{copy: {from: P, from_offset: 4096, to: C, to_offset: 0, bytes: "
      "1024}}, {copy: {from: P, from_offset: 1024, to: C, to_offset: 3072, bytes: 640}}]}\n";
  const Diagnosis why = diagnosis_of_text(text);
  EXPECT_EQ(why.fault_class, FaultClass::truncated) << why.text;
  EXPECT_TRUE(why.exact) << why.text;
}

TEST(Families, ErasedLateAndAnAxisLeftOutAreAmongTheRivals) {
  const std::string requests = "A: {tokens: 4, blocks: {P: [5], C: [1]}}";
  const Diagnosis late = diagnosis_of(requests,
                                      "  - fill: {name: grow, to: C/kv.L0, value: zero, actually: {after: put}}\n"
                                      "  - write: {name: put, request: A, to: C, layers: 0}\n"
                                      "  - read: {request: A, from: C, layers: 0}\n");
  const auto in_other_order = [](const Cause& c) {
    return in_words(c) == "read-before-ready: 'grow' happened only after 'put'";
  };
  EXPECT_TRUE(std::ranges::any_of(late.causes, in_other_order)) << late.text;
  EXPECT_FALSE(late.sure);
  const Diagnosis flat =
      diagnosis_of(requests, "  - move: {request: A, from: P, to: C, actually: {to: {of: C, strides: {head: 0}}}}\n");
  EXPECT_NE(flat.text.find("a stride of 0 bytes from head to head"), std::string::npos) << flat.text;
}

// One object suffices for a key that says too little: the hit keeps what was to be computed from being so.
TEST(Families, AKeyThatSaysTooLittleIsACauseAlsoOfOneObject) {
  const Diagnosis why =
      diagnosis_of("A: {tokens: 4, blocks: {P: [5], C: [1]}}, B: {tokens: 4, generation: 2, blocks: {P: [6], C: [3]}}",
                   "  - put: {store: s, request: A, from: P, key: {chunk: 1, model: a}, actually: {key: {model: null}}}\n"
                   "  - get: {store: s, request: B, to: C, key: {chunk: 1, model: b}, actually: {key: {model: null}}}\n"
                   "  - write: {request: B, to: C, actually: skipped}\n"
                   "  - read: {request: B, from: C}\n");
  EXPECT_EQ(why.fault_class, FaultClass::identity_collision) << why.text;
  EXPECT_TRUE(why.exact);
}

TEST(Families, SomethingExtraIsSaidAsTheStepThatItIs) {
  const std::string requests =
      "A: {tokens: 4, blocks: {P: [5], C: [1]}}, B: {tokens: 4, generation: 2, blocks: {P: [6], C: [1]}}";
  const Diagnosis loaded = diagnosis_of(requests,
                                        "  - write: {request: B, to: P}\n"
                                        "  - put: {store: s, request: B, from: P, key: {chunk: 1}}\n"
                                        "  - move: {request: A, from: P, to: C}\n"
                                        "  - nothing: {name: late, actually: [{get: {store: s, request: A, to: P, key: "
                                        "{chunk: 1}}}]}\n");
  EXPECT_EQ(loaded.fault_class, FaultClass::wrong_block_id) << loaded.text;
  EXPECT_NE(loaded.text.find("loaded for request A in 'late', where nothing was meant"), std::string::npos) << loaded.text;
  const Diagnosis again = diagnosis_of(requests,
                                       "  - move: {request: A, from: P, to: C}\n"
                                       "  - fill: {to: C/kv.L0, value: zero}\n"
                                       "  - nothing: {name: late, actually: [{move: {request: A, from: P, to: C}}]}\n");
  EXPECT_EQ(again.fault_class, FaultClass::stale_block) << again.text;
  EXPECT_NE(again.text.find("'move2' happened again in 'late', where nothing was meant"), std::string::npos) << again.text;
}

// Chunks of a prefill, of which the blocks across a boundary were sent by none.
TEST(Families, SeveralStepsMayEachLackSomething) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/told
geometry: {layers: 2, block_size: 8, heads: 1, head_dim: 32}
memory:
  P: {side: producer, template: "L x K B N H C", geometry: {blocks: 6}}
  D: {template: "L x B K H N C", geometry: {blocks: 6}}
requests: {A: {tokens: 37, blocks: {P: [3, 0, 5, 2, 1], D: [4, 1, 0, 3, 2]}}}
steps:
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: D, tokens: "0..11", actually: {tokens: "0..8"}}
  - move: {request: A, from: P, to: D, tokens: "11..27", actually: {tokens: "16..24"}}
  - move: {request: A, from: P, to: D, tokens: "27..37", actually: {tokens: "32..37"}}
)");
  EXPECT_EQ(why.fault_class, FaultClass::truncated) << why.text;
  EXPECT_NE(why.text.find("only 8 of 11 tokens in 'move2'; only 8 of 16 tokens in 'move3'; only 5 of 10"), std::string::npos)
      << why.text;
}

// A sliding window: the table's entries are not the request's first blocks.
TEST(Families, IdsOfAWindowAreReadOffTheBytes) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/told
geometry: {layers: 1, block_size: 4, heads: 2, head_dim: 32}
memory:
  P: {side: producer, template: "L x K B N H C", geometry: {blocks: 8}}
  D: {template: "L x K B N H C", geometry: {blocks: 6}}
requests:
  A: {tokens: 22, blocks: {P: [6, 7, 2], D: [1, 5, 3]}, positions: {P: [3, 4, 5], D: [3, 4, 5]}}
steps:
  - write: {request: A, to: P, tokens: "12..22"}
  - move: {request: A, from: P, to: D, tokens: "12..22", actually: {from_blocks: [0, 6, 7]}}
)");
  EXPECT_EQ(why.fault_class, FaultClass::wrong_block_id) << why.text;
  EXPECT_EQ(why.text.find("blocks [0, 6, 7] instead of [6, 7, 2] of P in 'move2'"), 0u) << why.text;
}

// A decode rank collects prefill ranks r and r + 2 instead of 2r and 2r + 1: one mistake, though two steps show it.
TEST(Families, RanksOfSeveralStepsAreOneMistake) {
  std::string text = R"(
case: t/ranks
geometry: {layers: 1, block_size: 4, heads: 8, head_dim: 16}
memory:
  D0: {rank: 0, template: "L x K B N H C", geometry: {blocks: 3, heads: 4, first_head: 0}}
  D1: {rank: 1, template: "L x K B N H C", geometry: {blocks: 3, heads: 4, first_head: 4}}
)";
  for (int r = 0; r < 4; ++r)
    text += fmt::format(
        "  P{0}: {{side: producer, rank: {0}, template: \"L x K B N H C\", geometry: {{blocks: 4, heads: 2, first_head: "
        "{1}}}}}\n",
        r, 2 * r);
  const Diagnosis why = diagnosis_of_text(text + R"(
requests: {A: {tokens: 7, blocks: {P0: [3, 0], P1: [3, 0], P2: [3, 0], P3: [3, 0], D0: [1, 2], D1: [1, 2]}}}
steps:
  - write: {request: A, to: [P0, P1, P2, P3]}
  - move: {request: A, from: [P0, P1], to: D0, actually: {from: [P0, P2], heads: [0, 1, 4, 5], to_heads: [0, 1, 2, 3]}}
  - move: {request: A, from: [P2, P3], to: D1, actually: {from: [P1, P3], heads: [2, 3, 6, 7], to_heads: [4, 5, 6, 7]}}
)");
  EXPECT_EQ(why.fault_class, FaultClass::head_shard_mapping) << why.text;
  EXPECT_EQ(why.text.find("P2 instead of P1 in 'move2', through the layout of P1; P1 instead of P2 in 'move3'"), 0u)
      << why.text;
  EXPECT_TRUE(why.sure);
}

// Two ranks look for their heads by the number in the whole model: an unlikely change of one step, but the same in both.
TEST(Families, AnUnlikelyMistakeInSeveralStepsIsOne) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/global-heads
geometry: {layers: 2, block_size: 8, heads: 8, head_dim: 16}
memory:
  P: {side: producer, template: "L x B K H N C", geometry: {blocks: 5, heads: 4, first_head: 4}}
  D0: {rank: 0, template: "L x B K H N C", geometry: {blocks: 6, heads: 2, first_head: 4}}
  D1: {rank: 1, template: "L x B K H N C", geometry: {blocks: 6, heads: 2, first_head: 6}}
requests:
  A: {tokens: 13, blocks: {P: [2, 0], D0: [1, 4], D1: [1, 4]}}
  B: {tokens: 10, generation: 2, blocks: {P: [3, 1]}}
steps:
  - write: {request: A, to: P}
  - write: {request: B, to: P}
  - move: {request: A, from: P, to: D0, actually: {from: {of: P, offset: 1024}}}
  - move: {request: A, from: P, to: D1, actually: {from: {of: P, offset: 1024}}}
)");
  EXPECT_EQ(why.fault_class, FaultClass::wrong_stride) << why.text;
  EXPECT_TRUE(why.sure) << why.text;
}

// The rope part of a latent row, taken from the row's start.
TEST(Families, APartOfALatentRowLiesWhereAnotherDoes) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/rope
geometry: {layers: 2, block_size: 8, heads: 1, kv: 1, head_dim: 40}
memory:
  P: {side: producer, template: "L x B N C", geometry: {blocks: 4}}
  D: {template: "L x B N C=0..32 & L x B N C=32..40", geometry: {blocks: 4}}
requests: {A: {tokens: 13, blocks: {P: [3, 1], D: [2, 0]}}}
steps:
  - write: {request: A, to: P}
  - move:
      request: A
      from: P
      to: D
      actually: [{intended: {channels: "0..32"}}, {intended: {channels: "0..8", to_channels: "32..40"}}]
)");
  EXPECT_EQ(why.fault_class, FaultClass::region_aliasing) << why.text;
}

// New blocks are zeroed over more than they have: what follows loses its content.
TEST(Families, AFillMayReachTooFar) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/zeroer
geometry: {layers: 3, blocks: 7, block_size: 4, heads: 1, head_dim: 32}
memory: {D: {template: "B L K N H C"}}
requests:
  A: {tokens: 7, blocks: {D: [3, 1]}}
  B: {tokens: 5, generation: 2, blocks: {D: [2, 4]}}
steps:
  - write: {request: A, to: D}
  - fill:
      name: zero
      to: D
      to_blocks: [2, 4]
      value: zero
      actually:
        - fill: {to: D, to_offset: 3072, bytes: 2560, value: zero}
        - fill: {to: D, to_offset: 6144, bytes: 2560, value: zero}
  - write: {request: B, to: D}
)");
  EXPECT_EQ(why.fault_class, FaultClass::over_read) << why.text;
  EXPECT_EQ(why.text.find("2 of 2 fills are too long in 'zero'"), 0u) << why.text;
}

// Neither the block nor K and V are added to the address.
TEST(Families, AllOfAnAxisMayBeReadAtOnePlace) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/base
geometry: {layers: 2, block_size: 8, heads: 2, head_dim: 16}
memory:
  P: {side: producer, template: "L x K B N H C", geometry: {blocks: 6}}
  D: {template: "L x K B N H C", geometry: {blocks: 6}}
requests:
  A: {tokens: 21, blocks: {P: [4, 2, 5], D: [1, 0, 3]}}
  B: {tokens: 8, generation: 2, blocks: {P: [0]}}
steps:
  - write: {request: A, to: P}
  - write: {request: B, to: P}
  - move: {request: A, from: P, to: D, actually: {from: {of: P, strides: {kv: 0}}, from_blocks: [0, 0, 0]}}
)");
  EXPECT_EQ(why.fault_class, FaultClass::wrong_stride) << why.text;
  EXPECT_NE(why.text.find("kv 0 instead of 3072, block 0 instead of 512"), std::string::npos) << why.text;
}

// Data-parallel ranks hold other requests: no shard is wrong, the right ids were looked up in the wrong place.
TEST(Families, RanksThatHoldOtherRequestsAreNoShards) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/peers
geometry: {layers: 2, block_size: 8, heads: 3, head_dim: 16}
memory:
  P0: {side: producer, rank: 0, template: "L x K B N H C", geometry: {blocks: 6}}
  P1: {side: producer, rank: 1, template: "L x K B N H C", geometry: {blocks: 6}}
  D: {template: "L x K B N H C", geometry: {blocks: 8}}
requests:
  A: {tokens: 13, blocks: {P0: [4, 2], D: [1, 5]}}
  B: {tokens: 21, generation: 2, blocks: {P1: [2, 5, 4], D: [7, 0, 3]}}
steps:
  - write: {request: A, to: P0}
  - write: {request: B, to: P1}
  - move: {request: A, from: P0, to: D, actually: {from: P1, from_blocks: [4, 2]}}
  - move: {request: B, from: P1, to: D}
)");
  EXPECT_EQ(why.fault_class, FaultClass::wrong_block_id) << why.text;
  EXPECT_EQ(why.text.find("P1 instead of P0 in 'move3'"), 0u) << why.text;
}

// One buffer for all layers, sent before it is filled.
TEST(Families, APipelineMayRunOneStepAhead) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/told
geometry: {layers: 3, block_size: 8, heads: 2, head_dim: 32}
memory:
  P: {side: producer, template: "L x K B N H C", geometry: {blocks: 6}}
  S: {side: staging, template: "B K N H C", geometry: {layers: 1, blocks: 3}}
  D: {template: "L x B K N H C", geometry: {blocks: 7}}
requests: {A: {tokens: 18, blocks: {P: [5, 1, 3], S: [0, 1, 2], D: [6, 2, 4]}}}
steps:
  - write: {request: A, to: P}
  - move: {name: s0, request: A, from: P, to: {of: S, geometry: {layers: 1, first_layer: 0}}, layers: 0}
  - move: {request: A, from: {of: S, geometry: {layers: 1, first_layer: 0}}, to: D, layers: 0, actually: {before: s0}}
  - move: {name: s1, request: A, from: P, to: {of: S, geometry: {layers: 1, first_layer: 1}}, layers: 1}
  - move: {request: A, from: {of: S, geometry: {layers: 1, first_layer: 1}}, to: D, layers: 1, actually: {before: s1}}
  - move: {name: s2, request: A, from: P, to: {of: S, geometry: {layers: 1, first_layer: 2}}, layers: 2}
  - move: {request: A, from: {of: S, geometry: {layers: 1, first_layer: 2}}, to: D, layers: 2, actually: {before: s2}}
)");
  EXPECT_EQ(why.fault_class, FaultClass::read_before_ready) << why.text;
  EXPECT_EQ(why.text.find("several steps happened at another time"), 0u) << why.text;
}

// The step between layers of the scales, by the other pool's blocks; in both moves, and the codes are right.
TEST(Families, AStepOfScalesIsReadOffTheBytes) {
  const Diagnosis why = diagnosis_of_text(R"(
case: t/told
dtype: int8_per_token_head
geometry: {layers: 4, block_size: 8, heads: 3, head_dim: 32}
memory:
  P: {side: producer, template: "L x K B N H C & scale L K B N H C", geometry: {blocks: 9}}
  D: {template: "L x K B N H C & scale L K B N H C", geometry: {blocks: 7}}
requests:
  A: {tokens: 21, blocks: {P: [8, 2, 5], D: [1, 6, 0]}}
  B: {tokens: 13, generation: 2, blocks: {P: [4, 7], D: [3, 5]}}
steps:
  - write: {request: A, to: P}
  - write: {request: B, to: P}
  - move: {request: A, from: P, to: D, actually: &wrong
      [{intended: {parts: data}}, {intended: {parts: scales, from: {scale_strides: {layer: 1344}}}}]}
  - move: {request: B, from: P, to: D, actually: *wrong}
)");
  EXPECT_EQ(why.fault_class, FaultClass::scale_misplaced) << why.text;
  EXPECT_EQ(why.text.find("wherever P is read: scales with steps of bytes: layer 1344 instead of 1728"), 0u) << why.text;
}

// Half of a read with numbers but without their scales.
TEST(Families, APieceOfAReadIsNamedAsOneOfAMove) {
  const std::string text =
      "case: t/half\ndtype: fp8_per_token_head\ngeometry: {layers: 1, blocks: 6, block_size: 4, heads: 2, head_dim: 16}\n"
      "memory: {G: {template: \"L x K B N H C & L x scale K B N H C\"}}\n"
      "requests: {A: {tokens: 12, blocks: {G: [4, 1, 5]}}}\n"
      "steps:\n  - write: {request: A, to: G}\n"
      "  - read: {request: A, from: G, decode: true, actually: [{intended: {tokens: \"0..4\"}}, {intended: {tokens: "
      "\"4..12\", scales: twice}}]}\n";
  const Diagnosis why = diagnosis_of_text(text);
  EXPECT_TRUE(why.exact) << why.text;
  EXPECT_EQ(why.fault_class, FaultClass::scale_lost) << why.text;
  EXPECT_NE(why.text.find("only tokens 4, 5, 6"), std::string::npos) << why.text;
}

TEST(Families, AnIdComesBeforeASizeThatNothingDeclares) {
  const std::string one = "A: {tokens: 4, blocks: {P: [5], C: [1]}}", two = "A: {tokens: 8, blocks: {P: [5, 0], C: [1, 2]}}";
  const auto moved = [](const std::string& how) {
    return "  - move: {request: A, from: P, to: C, actually: {" + how + "}}\n";
  };
  // Multiples of the right id are what other block sizes make, too.
  const std::pair<std::string, std::string> ids[] = {
      {one, "to_blocks: [3]"},    {one, "to_blocks: [2]"},    {one, "from_blocks: [2]"},   {two, "to_blocks: [3, 2]"},
      {two, "to_blocks: [3, 6]"}, {two, "to_blocks: [1, 6]"}, {two, "from_blocks: [6, 0]"}};
  for (const auto& [request, how] : ids) {
    const Diagnosis why = diagnosis_of(request, moved(how));
    EXPECT_EQ(why.fault_class, FaultClass::wrong_block_id) << how << ": " << why.text;
  }
  // Where many ids would have to be wrong it is the size.
  const Diagnosis size = diagnosis_of("A: {tokens: 16, blocks: {P: [5, 0, 3, 4], C: [1, 2, 0, 3]}}",
                                      moved("to: {of: C, layout: vllm-fa-nhd, geometry: {block_size: 8, blocks: 4}}"));
  EXPECT_EQ(size.fault_class, FaultClass::wrong_block_size) << size.text;
}

TEST(Families, WhatTheBytesCannotTellIsSaid) {
  const auto says = [](const Diagnosis& why, const std::string& words) { return why.text.find(words) != std::string::npos; };
  const std::string request = "A: {tokens: 12, blocks: {P: [5, 1, 0], C: [1, 2, 0]}}";
  const Diagnosis both = diagnosis_of(
      request, "  - move: {request: A, from: P, to: C, actually: {to_blocks: [1, 2, none], from_blocks: [5, 1, none]}}\n");
  EXPECT_EQ(both.fault_class, FaultClass::wrong_block_id) << both.text;
  EXPECT_TRUE(says(both, "block 0 taken for no block")) << both.text;
  EXPECT_TRUE(says(both, "the bytes cannot tell it from truncated")) << both.text;
  // No other cause makes this.
  const Diagnosis alone =
      diagnosis_of(request, "  - move: {request: A, from: P, to: C, actually: {kv: [K, V], to_kv: [V, K]}}\n");
  EXPECT_EQ(alone.fault_class, FaultClass::kv_split_vs_interleaved) << alone.text;
  EXPECT_FALSE(says(alone, "cannot tell")) << alone.text;
}

TEST(Families, APieceIsNamedBeforeTheSearchIsSpent) {
  const std::string text =
      "case: t/size\ndtype: bf16\ngeometry: {layers: 6, blocks: 8, block_size: 16, heads: 4, head_dim: 64}\nmemory:\n"
      "  P: {side: producer, layout: vllm-fa-hnd}\n  C: {layout: vllm-fa-nhd}\n"
      "requests: {A: {tokens: 40, blocks: {P: [3, 0, 5], C: [2, 4, 0]}}}\nsteps:\n  - write: {request: A, to: P}\n"
      "  - move: {request: A, from: P, to: C, actually: [{intended: {layers: [0, 1, 2, 4, 5]}}, "
      "{intended: {layers: 3, kv: [K, V], to_kv: [V, K]}}]}\n";
  const Diagnosis why = diagnosis_of_text(text);
  EXPECT_EQ(why.fault_class, FaultClass::kv_split_vs_interleaved) << why.text;
  EXPECT_NE(why.text.find("only layers 3"), std::string::npos) << why.text;
}

TEST(Families, AscendByCost) {
  const std::vector<FamilyCost> costs = family_costs();
  EXPECT_TRUE(std::ranges::is_sorted(costs, {}, &FamilyCost::cost));
  EXPECT_GT(costs.front().cost, 0);
}

// An id beyond the pool where blocks are not the outermost axis: its address is one of another plane.
TEST(Families, IdsBeyondThePool) {
  expect_needed("ids beyond the pool", FaultClass::wrong_block_id, R"(
case: beyond
dtype: bf16
geometry: {layers: 1, blocks: 6, block_size: 4, heads: 2, head_dim: 16}
memory:
  P: {side: producer, template: "L x K B N H C"}
  C: {template: "L x K B N H C"}
requests:
  A: {tokens: 12, blocks: {P: [5, 0, 2], C: [1, 4, 3]}}
steps:
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: C, actually: {from_blocks: [7, 0, 6]}}
expected: {outcome: FAIL, class: wrong-block-id}
)");
}

// A step of minus one block from the first to the second would lead there, too; an id -1 is plainer.
TEST(Families, AnIdBesideThePool) {
  expect_needed("an id beside the pool", FaultClass::wrong_block_id, R"(
case: minus-one
dtype: bf16
geometry: {layers: 1, blocks: 4, block_size: 4, heads: 1, head_dim: 16, kv: 1}
memory: {P: {side: producer, template: "B N C"}, C: {template: "B N C"}}
requests: {A: {tokens: 8, blocks: {P: [0, 1], C: [1, 3]}}}
steps:
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: C, actually: {to_blocks: [1, -1]}}
expected: {outcome: FAIL, class: wrong-block-id}
)");
}

// Three entries under one key, of which the first one stays: two are read wrongly, so no step alone explains it.
TEST(Families, SeveralKeys) {
  expect_needed("several keys", FaultClass::identity_collision, R"(
case: first-of-three
dtype: bf16
geometry: {layers: 1, blocks: 12, block_size: 4, heads: 2, head_dim: 16}
memory:
  P: {side: producer, layout: vllm-fa-nhd}
  C: {layout: vllm-fa-nhd}
requests:
  A: {tokens: 8, blocks: {P: [3, 0], C: [1, 2]}}
  B: {tokens: 8, generation: 2, blocks: {P: [5, 6], C: [4, 7]}}
  D: {tokens: 8, generation: 3, blocks: {P: [8, 9], C: [10, 11]}}
steps:
  - write: {request: A, to: P}
  - write: {request: B, to: P}
  - write: {request: D, to: P}
  - put: {request: A, from: P, key: {tokens: t, dtype: bf16}, actually: {key: {dtype: null}, on_exists: keep}}
  - put: {request: B, from: P, key: {tokens: t, dtype: fp8}, actually: {key: {dtype: null}, on_exists: keep}}
  - put: {request: D, from: P, key: {tokens: t, dtype: int8}, actually: {key: {dtype: null}, on_exists: keep}}
  - get: {request: A, to: C, key: {tokens: t, dtype: bf16}, actually: {key: {dtype: null}}}
  - get: {request: B, to: C, key: {tokens: t, dtype: fp8}, actually: {key: {dtype: null}}}
  - get: {request: D, to: C, key: {tokens: t, dtype: int8}, actually: {key: {dtype: null}}}
expected: {outcome: FAIL, class: identity-collision}
)");
}

using Places = std::function<std::optional<layout::Location>(layout::Component, const layout::Coord&)>;

// Every element of the cache lies where `places` has it.
bool lies(const layout::Cache& cache, const Places& places) {
  for (const layout::Plane& plane : cache.planes) {
    const layout::Box box = layout::domain(plane);
    for (layout::Coord at = box.lo;;) {
      if (layout::locate(cache, plane.component, at) != places(plane.component, at)) return false;
      std::size_t axis = 0;
      while (axis < layout::all_axes.size() && ++at[layout::all_axes[axis]] == box.hi[layout::all_axes[axis]])
        at[layout::all_axes[axis]] = box.lo[layout::all_axes[axis]], ++axis;
      if (axis == layout::all_axes.size()) break;
    }
  }
  return true;
}

// What the one mistaken step of a case uses instead of what it should.
const View& mistaken(const Script& script) {
  for (const Step& step : script.steps) {
    if (step.as_intended) continue;
    const Action &meant = step.intended, &done = step.actual.at(0);
    return done.to == meant.to ? done.from.at(0) : done.to.at(0);
  }
  throw std::runtime_error("no step is mistaken");
}

struct Packing {
  const char* id;
  const char* file;
  std::vector<Variant> (*variants)(const layout::Cache&);
};

TEST(Variants, OfPackingLieWhereTheMistakeLooks) {
  const catalogue::Catalogue catalogue(cases);
  for (const Packing& p : {Packing{"field/packed-as-bytes", "field/codes.yaml", repitched},
                           Packing{"field/row-without-its-scale", "field/scales.yaml", repitched},
                           Packing{"field/footer-scales-read-inline", "field/scales.yaml", relaid},
                           Packing{"field/v-scales-linear-into-interleaved", "field/scales.yaml", swizzled}}) {
    const Script script = told(case_of(p.file, p.id, catalogue), catalogue);
    const layout::Cache wrong = cache_of(mistaken(script));
    const auto variants = p.variants(cache_of(script.memories.at("C").view));
    EXPECT_TRUE(std::any_of(variants.begin(), variants.end(), [&](const Variant& variant) {
      return lies(variant.cache, [&](layout::Component component, const layout::Coord& at) {
        return layout::locate(wrong, component, at);
      });
    })) << p.id;
  }
}

TEST(Variants, OfTheOrderOfCodesExchangeTheTwoOfAByte) {
  const catalogue::Catalogue catalogue(cases);
  const layout::Cache declared =
      cache_of(told(case_of("field/codes.yaml", "field/nibbles-exchanged", catalogue), catalogue).memories.at("C").view);
  const auto variants = recoded(declared);
  EXPECT_TRUE(std::any_of(variants.begin(), variants.end(), [&](const Variant& variant) {
    return lies(variant.cache, [&](layout::Component component, layout::Coord at) {
      if (component == layout::Component::data) at[layout::Axis::channel] ^= 1;
      return layout::locate(declared, component, at);
    });
  }));
}

}  // namespace
}  // namespace kvcts::script
