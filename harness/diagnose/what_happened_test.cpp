// What a failure says besides its cause: findings of played cases, what was due when a run stopped, and words that are no
// proof's.
#include <gtest/gtest.h>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_script.hpp"
#include "diagnose/explain.hpp"
#include "diagnose/facts.hpp"
#include "diagnose/run.hpp"
#include "scene/machine/sequence.hpp"
#include "testing/checkout.hpp"

namespace kvcts::script {
namespace {

Script script_of(const std::string& steps, const std::string& dtype, const std::string& layout, int blocks = 6) {
  static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
  const std::string text = "case: t/happened\ndtype: " + dtype +
                           "\ngeometry: {layers: 2, blocks: " + std::to_string(blocks) +
                           ", block_size: 4, heads: 2, head_dim: 16}\n"
                           "memory:\n  P: {side: producer, " +
                           layout +
                           "}\n  C: {layout: vllm-fa-nhd}\n"
                           "requests:\n  A: {tokens: 8, blocks: {P: [3, 0], C: [1, 4]}}\n"
                           "  B: {tokens: 8, generation: 2, blocks: {P: [2, 5], C: [1, 4]}}\nsteps:\n" +
                           steps;
  return resolve_script(catalogue::parse_cases(text, "f.yaml", &catalogue).at(0), catalogue);
}

Report played(const std::string& steps, const std::string& dtype = "bf16",
              const std::string& layout = "layout: vllm-fa-nhd") {
  return run_script(script_of(steps, dtype, layout), 1);
}

std::vector<std::string> told(const Report& report) {
  std::vector<std::string> out;
  for (const Finding& one : report.what_happened) out.push_back(one.text);
  return out;
}
using Words = std::vector<std::string>;

/// As it is said of a case that is too large for clues.
std::vector<Finding> found_in_runs(const Script& script) {
  const Arena arena(script);
  Names names;
  const Truth truth = paint(without_faults(script), arena, names);
  Expectation expectation(truth, arena, names, 1);
  const Tape tape = record(script, arena, actual_sequence(script));
  const Observation seen = observe(tape, 1, 2);
  const Mismatch mismatch = compare(seen, truth, expectation, arena);
  return what_happened(script, arena, names, runs_of(seen, mismatch, expectation, arena, names, 1));
}
Words told_in_runs(const Script& script) {
  Report report;
  report.what_happened = found_in_runs(script);
  return told(report);
}

bool says(const Report& report, const std::string& words) {
  return (report.message + "; " + report.state).find(words) != std::string::npos;
}

TEST(WhatHappened, ToAPieceOfAMove) {
  const Report report = played(
      "  - write: {request: A, to: P}\n"
      "  - move: {request: A, from: P, to: C, actually: [{move: {request: A, from: P, to: C, layers: [0]}}, "
      "{move: {request: A, from: P, to: C, layers: [1], kv: [K, V], to_kv: [V, "
      "K]}}]}\n");
  EXPECT_EQ(report.outcome, Outcome::fail);
  EXPECT_EQ(told(report), Words{"C, layer 1: holds K and V exchanged (1,024 bytes)"});
  ASSERT_FALSE(report.first_wrong.empty());
  const WrongByte& first = report.first_wrong[0];
  EXPECT_TRUE(first.where.ends_with("; wrong to " + std::to_string(first.offset + 255))) << first.where << ": K of a block";
}

TEST(WhatHappened, ToNumbersByTheirScales) {
  const std::pair<const char*, const char*> reads[] = {
      {"scales: ignored", "out: holds numbers without their scale (4,096 bytes)"},
      // Head 0's numbers are right.
      {"from: {of: P, scale_strides: {head: 0}}", "out, head 1: holds its number with the scale of head 0 (2,048 bytes)"},
  };
  for (const auto& [actually, words] : reads) {
    const Report report = played(std::string("  - write: {request: A, to: P}\n"
                                             "  - read: {name: out, request: A, from: P, decode: true, actually: {") +
                                     actually + "}}\n",
                                 "fp8_per_token_head");
    EXPECT_EQ(report.outcome, Outcome::fail) << actually;
    EXPECT_EQ(told(report), Words{words});
  }
}

TEST(WhatHappened, NamesContentThatTheIntendedStepsPutNowhere) {
  const Report report = played("  - write: {request: A, to: P, actually: {request: B, to_blocks: [3, 0]}}\n");
  EXPECT_EQ(told(report), Words{"P: holds request B (2,048 bytes)"});
}

TEST(WhatHappened, IsTheSameOfRunsAsOfEveryByte) {
  const std::string write = "  - write: {request: A, to: P}\n", move = "  - move: {request: A, from: P, to: C, actually: ";
  const std::pair<std::string, Words> cases[] = {
      {write + move + "{kv: [K, V], to_kv: [V, K]}}\n", {"C: holds K and V exchanged (2,048 bytes)"}},
      {write + move + "{layers: [0]}}\n", {"C, layer 1: not written (1,024 bytes)"}},
      {write + move + "{to_blocks: [1, 2]}}\n",
       {"C, block 2: holds request A, layers 0..1, K and V, tokens 4..7, heads 0..1, where nothing was meant (1,024 bytes)",
        "C, tokens 4..7 (block 4): not written (1,024 bytes)"}},
      {write + move + "{from_blocks: [3, 1]}}\n",
       {"C, tokens 4..7 (block 4): holds what was in P before anything was written (1,024 bytes)"}},
      // In the middle of rows, and beyond the ends of regions.
      {write + move + "{from: {of: P, layout: vllm-fa-nhd, offset: 6}}}\n", {}},
      {write + "  - move: {request: A, from: P, to: C}\n  - fill: {to: C/kv.L1, value: zero, actually: {to: C/kv.L0}}\n",
       {}},
      {write + "  - read: {request: A, from: P, actually: {heads: [0]}}\n", {}},
      {write + move + "{layers: [1]}}\n  - read: {request: A, from: C}\n", {}},
  };
  for (const auto& [steps, words] : cases) {
    const Script script = script_of(steps, "bf16", "layout: vllm-fa-nhd");
    const Words in_runs = told_in_runs(script);
    EXPECT_FALSE(in_runs.empty()) << steps;
    EXPECT_TRUE(words.empty() || in_runs == words) << steps;
    EXPECT_EQ(in_runs, told(run_script(script, 1))) << steps;
  }
}

TEST(WhatHappened, IsSaidOfRunsInAPoolKeptPageByPage) {
  // Where nothing was meant, from the end of one page to the middle of the next.
  const Script script = script_of(
      "  - write: {request: A, to: P}\n  - nothing: {name: stray, actually: [{copy: {from: P/kv.L0, from_offset: 0, "
      "to: C/kv.L0, to_offset: 8388000, bytes: 4000}}]}\n",
      "bf16", "layout: vllm-fa-nhd", 20000);
  std::int64_t bytes = 0;
  for (const Finding& one : found_in_runs(script)) {
    bytes += one.bytes;
    EXPECT_EQ(one.text.find("declared"), std::string::npos) << "nothing was to be read: " << one.text;
  }
  EXPECT_EQ(bytes, 4000);
}

TEST(WhatHappened, DelayedStepsRunInTheOrderOfTheFile) {
  const std::string moves =
      "  - write: {request: A, to: P}\n  - write: {request: B, to: P}\n"
      "  - move: {name: first, request: A, from: P, to: C, actually: {after: anchor}}\n"
      "  - move: {name: second, request: B, from: P, to: C, actually: {after: anchor}}\n  - complete: {name: anchor, "
      "request: B}\n";
  EXPECT_EQ(played(moves).outcome, Outcome::pass) << played(moves).message;
  // Also behind a step that is itself delayed.
  EXPECT_EQ(played(moves + "  - move: {name: third, request: A, from: P, to: C}\n"
                           "  - move: {request: B, from: P, to: C, actually: {after: second}}\n")
                .outcome,
            Outcome::fail)
      << "the last one came before 'third'";
}

TEST(WhatHappened, AHangCountsOnlyWhatWasDue) {
  const Report report = played(
      "  - write: {request: A, to: P}\n  - move: {request: A, from: P, to: C}\n"
      "  - signal: {event: there, fields: {id: 5}, actually: {fields: {id: 4}}}\n  - wait: {event: there, fields: {id: 5}}\n"
      "  - read: {request: A, from: C}\n");
  EXPECT_EQ(report.outcome, Outcome::hang);
  EXPECT_EQ(report.wrong_bytes, 0);
  EXPECT_TRUE(says(report, "all 4096 bytes had arrived")) << report.message << report.state;
  EXPECT_TRUE(says(report, "'there' came with {\"id\":4}")) << report.message;
  EXPECT_EQ(told(report), Words{});

  const Report half = played(
      "  - write: {request: A, to: P}\n  - move: {request: A, from: P, to: C, actually: {layers: [0]}}\n"
      "  - wait: {event: there}\n  - read: {request: A, from: C}\n");
  EXPECT_EQ(half.outcome, Outcome::hang);
  EXPECT_EQ(told(half), Words{"C, layer 1: not written (1,024 bytes)"});
  EXPECT_TRUE(says(half, "1024 of 4096 bytes were wrong, 1024 of them never written")) << half.state;
}

TEST(WhatHappened, AnAccessOutsideIsABlockAndASlot) {
  const Report report =
      played("  - write: {request: A, to: P, actually: {to_blocks: [3, 40]}}\n", "bf16", "template: \"L x B K N H C\"");
  EXPECT_EQ(report.outcome, Outcome::crash);
  EXPECT_TRUE(says(report, "outside (block 40, slot 0, of 6 blocks)")) << report.message;
}

TEST(WhatHappened, WhatWasNotErasedWasLeft) {
  const Report report = played("  - write: {request: A, to: P}\n  - fill: {to: P/kv.L0, value: zero, actually: skipped}\n");
  EXPECT_EQ(report.outcome, Outcome::fail);
  EXPECT_TRUE(says(report, "bytes that were to be erased were left")) << report.message;
  EXPECT_FALSE(says(report, "overwritten")) << report.message;
}

TEST(WhatHappened, ARegistrationElsewhereIsOneClass) {
  for (const char* place : {"0", "1024"}) {
    const Report report = played(
        "  - register: {memory: P/kv.L0, offset: 0, bytes: 512}\n"
        "  - register: {memory: P/kv.L0, offset: 512, bytes: 2560, actually: {maps: " +
        std::string(place) +
        "}}\n"
        "  - register: {memory: P/kv.L1}\n  - write: {request: A, to: P}\n  - move: {request: A, from: P, to: C}\n");
    EXPECT_EQ(report.diagnosis.fault_class, FaultClass::registration_missing_region) << place << ": " << report.message;
  }
}

}  // namespace
}  // namespace kvcts::script
