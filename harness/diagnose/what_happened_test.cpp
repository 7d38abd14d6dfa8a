// What a failure says besides its cause: findings of played cases, what was due when a run stopped, and words that are no
// proof's.
#include <gtest/gtest.h>

#include "diagnose/explain.hpp"
#include "diagnose/run.hpp"
#include "diagnose/testing/cases.hpp"
#include "diagnose/what_happened.hpp"
#include "scene/machine/sequence.hpp"

namespace kvcts::scenario {
namespace {

using testing_support::as_expected, testing_support::case_of, testing_support::scenario_of;

/// Of a case of testing/scripts, which ends as it says.
Report executed(const std::string& id) {
  Report report = run_scenario(scenario_of(id), 1);
  EXPECT_TRUE(as_expected(case_of(id), report)) << id << ": " << report.message;
  return report;
}

std::vector<std::string> sentences(const Report& report) {
  std::vector<std::string> out;
  for (const Finding& one : report.what_happened) out.push_back(one.text);
  return out;
}
using Words = std::vector<std::string>;

/// As it is said of a case that is too large for attributions.
std::vector<Finding> found_in_runs(const Scenario& scenario) {
  const AddressSpace space(scenario);
  SymbolTable names;
  const Truth truth = truth_of(without_faults(scenario), space, names);
  Expectation expectation(truth, space, names, 1);
  const CopyProgram program = record(scenario, space, actual_sequence(scenario));
  const Observation seen = observe(program, 1, 2);
  const Mismatch mismatch = compare(seen, truth, expectation, space);
  return what_happened(scenario, space, names, symbol_extents(seen, mismatch, expectation, space, names, 1));
}
Words reported_in_runs(const Scenario& scenario) {
  Report report;
  report.what_happened = found_in_runs(scenario);
  return sentences(report);
}

bool says(const Report& report, const std::string& words) {
  return (report.message + "; " + report.state).find(words) != std::string::npos;
}

TEST(WhatHappened, NamesThePieceOfAMove) {
  const Report report = executed("happened/move#a-layer-with-k-and-v-exchanged");
  EXPECT_EQ(sentences(report), Words{"C, layer 1: holds K and V exchanged (1,024 bytes)"});
  ASSERT_FALSE(report.first_wrong.empty());
  const WrongByte& first = report.first_wrong[0];
  EXPECT_TRUE(first.where.ends_with("; wrong to " + std::to_string(first.offset + 255))) << first.where << ": K of a block";
}

TEST(WhatHappened, NamesTheScaleOfDecodedNumbers) {
  EXPECT_EQ(sentences(executed("happened/scales#ignored")), Words{"out: holds numbers without their scale (4,096 bytes)"});
  EXPECT_EQ(sentences(executed("happened/scales#of-head-0")),
            Words{"out, head 1: holds its number with the scale of head 0 (2,048 bytes)"})
      << "head 0's numbers are right";
}

TEST(WhatHappened, NamesContentThatTheIntendedStepsPutNowhere) {
  EXPECT_EQ(sentences(executed("happened/content-of-another")), Words{"P: holds request B (2,048 bytes)"});
}

TEST(WhatHappened, ExtentsGiveTheSameFindingsAsBytes) {
  const std::pair<const char*, Words> cases[] = {
      {"happened/move#k-and-v-exchanged", {"C: holds K and V exchanged (2,048 bytes)"}},
      {"happened/move#a-layer-left-out", {"C, layer 1: not written (1,024 bytes)"}},
      {"happened/move#to-another-block",
       {"C, block 2: holds request A, layers 0..1, K and V, tokens 4..7, heads 0..1, where nothing was meant (1,024 bytes)",
        "C, tokens 4..7 (block 4): not written (1,024 bytes)"}},
      {"happened/move#from-another-block",
       {"C, tokens 4..7 (block 4): holds what was in P before anything was written (1,024 bytes)"}},
      {"happened/move#six-bytes-on", {}},
      {"happened/erased", {}},
      {"happened/read", {}},
      {"happened/move-and-read", {}},
  };
  for (const auto& [id, words] : cases) {
    const Words in_runs = reported_in_runs(scenario_of(id));
    EXPECT_FALSE(in_runs.empty()) << id;
    EXPECT_TRUE(words.empty() || in_runs == words) << id;
    EXPECT_EQ(in_runs, sentences(executed(id))) << id;
  }
}

TEST(WhatHappened, CoversAPoolKeptPageByPage) {
  const Scenario scenario = scenario_of("happened/pool-kept-page-by-page");
  std::int64_t bytes = 0;
  for (const Finding& one : found_in_runs(scenario)) {
    bytes += one.bytes;
    EXPECT_EQ(one.text.find("declared"), std::string::npos) << "nothing was to be read: " << one.text;
  }
  EXPECT_EQ(bytes, 4000);
}

TEST(WhatHappened, AHangCountsOnlyStepsThatWereDue) {
  const Report report = executed("happened/hang");
  EXPECT_EQ(report.wrong_bytes, 0);
  EXPECT_TRUE(says(report, "all 4096 bytes had arrived")) << report.message << report.state;
  EXPECT_EQ(sentences(report), Words{});

  const Report half = executed("happened/hang#half-arrived");
  EXPECT_EQ(sentences(half), Words{"C, layer 1: not written (1,024 bytes)"});
  EXPECT_TRUE(says(half, "1024 of 4096 bytes were wrong, 1024 of them never written")) << half.state;
}

TEST(WhatHappened, NamesContentThatWasNotErased) {
  const Report report = executed("happened/not-erased");
  EXPECT_FALSE(says(report, "overwritten")) << report.message;
}

}  // namespace
}  // namespace kvcts::scenario
