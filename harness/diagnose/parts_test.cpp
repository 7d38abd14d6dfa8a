// `parts` of every operation that has them: a step split into its parts equals that step, however the scales are laid out; a
// missing or foreign part is detected. Where parts, picks and lists of blocks ask for the impossible, the file is rejected.
#include <gtest/gtest.h>

#include <filesystem>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_script.hpp"
#include "diagnose/explain.hpp"
#include "diagnose/run.hpp"
#include "scene/machine/recorder.hpp"
#include "testing/checkout.hpp"

namespace kvcts::script {
namespace {

const catalogue::Catalogue& catalogue() {
  static const catalogue::Catalogue all(std::filesystem::path(checkout::source()) / "cases");
  return all;
}

struct Scales {
  const char* name;
  const char* dtype;
  const char* layout;
};
void PrintTo(const Scales& s, std::ostream* out) { *out << s.name; }

constexpr Scales all_scales[] = {{"inline", "fp8_per_token_head", "L x B K N H { C ; scale C }"},
                                 {"footer", "fp8_per_token_head", "L x B K { N H C ; scale N H C }"},
                                 {"side", "fp8_per_token_head", "L x K B N H C & L x scale K B N H C"},
                                 {"side_and_global", "nvfp4", "L x K B N H C & L x scale K B N H C & gscale L K"},
                                 {"one_of_two_layers_last", "fp8_per_token_head", "B L K N H { C ; scale C }"}};

std::string head(const Scales& s) {
  return std::string("case: t/parts\ndtype: ") + s.dtype +
         "\ngeometry: {layers: 2, blocks: 6, block_size: 4, heads: 2, head_dim: 32}\n"
         "memory:\n  P: {side: producer, template: \"" +
         s.layout + "\"}\n  C: {template: \"" + s.layout +
         "\"}\n"
         "requests:\n  A: {tokens: 10, blocks: {P: [3, 0, 4], C: [5, 1, 2]}}\nsteps:\n";
}

Script told(const std::string& text) {
  return resolve_script(catalogue::parse_cases(text, "f.yaml", &catalogue())[0], catalogue());
}
Report played(const std::string& text) {
  const Script script = told(text);
  expect_playable(script);
  return run_script(script, 1);
}
/// Whether every byte and report is as intended; does not search for a cause.
bool right(const std::string& text) {
  const Script script = told(text);
  expect_playable(script);
  const Arena arena(script);
  Names names;
  const Truth truth = paint(without_faults(script), arena, names);
  const Observation seen = observe(record(script, arena, actual_sequence(script)), 1, 4);
  Expectation expectation(truth, arena, names, 1);
  return !compare(seen, truth, expectation, arena).any();
}
std::string error_of(const std::string& text) {
  try {
    played(text);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Each operation that has parts, and what makes it visible.
struct Told {
  const char* before;
  const char* step;  ///< up to `actually`
  const char* after;
};
const std::map<std::string, Told> operations{
    {"write", {"", "  - write: {request: A, to: P", ""}},
    {"move", {"  - write: {request: A, to: P}\n", "  - move: {request: A, from: P, to: C", ""}},
    {"fill", {"  - write: {request: A, to: P}\n", "  - fill: {request: A, to: P, value: \"a5\"", ""}},
    {"read", {"  - write: {request: A, to: P}\n", "  - read: {request: A, from: P", ""}},
    {"put",
     {"  - write: {request: A, to: P}\n", "  - put: {request: A, from: P, key: k",
      "  - get: {request: A, to: C, key: k}\n"}},
    {"get",
     {"  - write: {request: A, to: P}\n  - put: {request: A, from: P, key: k}\n", "  - get: {request: A, to: C, key: k",
      ""}},
};

class Parts : public testing::TestWithParam<Scales> {};

TEST_P(Parts, ToldOneByOneAreTheStep) {
  for (const auto& [name, op] : operations) {
    SCOPED_TRACE(name);
    const auto with = [&](const std::string& actual) {
      return right(head(GetParam()) + op.before + op.step + ", actually: " + actual + "}\n" + op.after);
    };
    EXPECT_TRUE(right(head(GetParam()) + op.before + op.step + "}\n" + op.after));
    EXPECT_TRUE(with("[{intended: {parts: data}}, {intended: {parts: scales}}]"));
    EXPECT_TRUE(with("[{intended: {parts: scales}}, {intended: {parts: data}}]"));
    EXPECT_FALSE(with("[{intended: {parts: data}}]"));
    EXPECT_FALSE(with("[{intended: {parts: scales}}]"));
  }
}

TEST_P(Parts, ByLayerAndByKeyAndValueToo) {
  for (const auto& [name, op] : operations) {
    SCOPED_TRACE(name);
    const auto with = [&](const std::string& actual) {
      return right(head(GetParam()) + op.before + op.step + ", actually: " + actual + "}\n" + op.after);
    };
    EXPECT_TRUE(with("[{intended: {layers: 1}}, {intended: {layers: 0}}]"));
    EXPECT_TRUE(with("[{intended: {kv: V, parts: scales}}, {intended: {parts: data}}, {intended: {kv: K, parts: scales}}]"));
    EXPECT_TRUE(with("[{intended: {tokens: \"4..10\"}}, {intended: {tokens: \"0..4\"}}]"));
    EXPECT_FALSE(with("[{intended: {layers: 1}}]"));
  }
}

TEST_P(Parts, ARawReadSeesScalesThatAreAnothers) {
  const std::string before = head(GetParam()) + "  - write: {request: A, to: P}\n";
  EXPECT_FALSE(right(
      before +
      "  - read: {request: A, from: P, actually: [{intended: {parts: data}}, {intended: {parts: scales, kv: [K, K]}}]}\n"));
  EXPECT_FALSE(right(before + "  - read: {request: A, from: P, parts: scales, actually: {kv: [K, K]}}\n"));
  EXPECT_FALSE(right(before + "  - read: {request: A, from: P, parts: data, actually: {kv: [V, K]}}\n"));
}

INSTANTIATE_TEST_SUITE_P(All, Parts, testing::ValuesIn(all_scales),
                         [](const auto& scales) { return std::string(scales.param.name); });

TEST(Reads, TakeTheScalesOfKForV) {
  const std::string text =
      head(all_scales[2]) +
      "  - write: {request: A, to: P}\n  - read: {request: A, from: P, actually: {from: {of: P, scale_strides: {kv: 0}}}}\n";
  const Report reply = played(text);
  EXPECT_EQ(reply.outcome, Outcome::fail);
  EXPECT_EQ(reply.diagnosis.fault_class, FaultClass::scale_misplaced) << reply.message;
}

TEST(Objects, OfSeveralViewsHaveOneOrder) {
  const std::string text =
      "case: t/ranks\ndtype: fp16\ngeometry: {layers: 1, blocks: 4, block_size: 4, heads: 2, head_dim: 16}\n"
      "memory:\n  P0: {side: producer, template: \"L x K B N H C\", geometry: {heads: 1}}\n  P1: {side: producer, template: "
      "\"L x K B N H C\", geometry: {heads: 1, first_head: 1}}\n"
      "  C: {template: \"L x K B N H C\"}\n  D0: {template: \"L x K B N H C\"}\n  D1: {template: \"L x K B N H C\"}\n"
      "requests: {A: {tokens: 6, blocks: {P0: [3, 0], P1: [1, 2], C: [2, 1], D0: [0, 1], D1: [3, 2]}}}\n"
      "steps:\n  - write: {request: A, to: [P0, P1]}\n  - put: {request: A, from: [P0, P1], key: k}\n  - get: {request: A, "
      "to: C, key: k}\n  - get: {request: A, to: [D0, D1], key: k}\n";
  const Report reply = played(text);
  EXPECT_EQ(reply.outcome, Outcome::pass) << reply.message;
}

// ---- impossible requests -------------------------------------------------------------------------------------------

TEST(Mistakes, OfPartsPicksAndListsAreSaid) {
  const std::string start = head(all_scales[2]) + "  - write: {request: A, to: P}\n";
  const auto has = [&](const std::string& step, const std::string& words) {
    const std::string error = error_of(start + step);
    EXPECT_NE(error.find(words), std::string::npos) << step << error;
  };
  has("  - read: {request: A, from: P, decode: true, parts: data}\n", "no 'parts' in a read with decode");
  has("  - read: {request: A, from: P, actually: {scales: ignored}}\n", "'scales' only with decode");
  has("  - fill: {to: P/kv.L0, value: zero, parts: scales}\n", "'parts' only with request or to_blocks");
  has("  - fill: {to: P/kv.L0, value: zero, kv: K}\n", "'kv' only with request or to_blocks");
  has("  - fill: {to: [P/kv.L0, C/kv.L0], value: zero}\n", "one memory or allocation");
  has("  - move: {request: A, from: P, to: C/kv.L0, parts: scales}\n", "has no scales");
  has("  - read: {request: A, from: P, parts: data, actually: {parts: scales}}\n", "reads scale into the output 'read2'");
  has("  - move: {request: A, from: P, to: C, tokens: \"4..10\", actually: {from_blocks: [3]}}\n",
      "has none for token 4, which is entry 1 of the request's table");
  has("  - move: {request: A, from: P, to: C, actually: {to_blocks: []}}\n", "an empty list of blocks");
  // What the intended steps cannot mean.
  has("  - move: {request: A, from: P, to: C, layers: 2}\n",
      "step 'move2': picks layer 2, which 'P' does not hold: expected 0..1");
  has("  - read: {request: A, from: P, heads: [0, 7]}\n", "picks head 7, which 'P' does not hold: expected 0..1");
  has("  - write: {request: A, to: P, kv: 2}\n", "picks kv 2");
  has("  - move: {request: A, from: P, to: C, tokens: 10}\n", "picks token 10, but request 'A' has tokens 0 to 9");
  has("  - move: {request: A, from: P, to: {of: C, offset: 65536}}\n", "are outside of 'C/kv.L0'");
  has("  - unregister: {memory: P/kv.L0}\n", "expected one that begins there");
  has("  - put: {request: A, from: P, key: k, layers: 0}\n  - get: {request: A, to: C, key: k}\n", "codes");
}

TEST(Picks, ThatNobodyHoldsAreWatchedUnderActually) {
  const std::string start = head(all_scales[2]) + "  - write: {request: A, to: P}\n";
  for (const char* actual : {"{layers: [0, 1, 2]}", "{heads: [0, 1, 2]}", "{kv: [0, 1, 2]}", "{channels: \"0..33\"}"}) {
    SCOPED_TRACE(actual);
    EXPECT_EQ(played(start + "  - move: {request: A, from: P, to: C, actually: " + actual + "}\n").outcome, Outcome::fail);
    EXPECT_EQ(played(start + "  - read: {request: A, from: P, actually: " + actual + "}\n").outcome, Outcome::crash);
  }
  EXPECT_EQ(played(start + "  - move: {request: A, from: P, to: C, actually: {to_blocks: [5, 1, 6]}}\n").outcome,
            Outcome::fail);
}

}  // namespace
}  // namespace kvcts::script
