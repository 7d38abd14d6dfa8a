// What the tries of a case come to.
#include "cli/run/fold.hpp"

#include <gtest/gtest.h>

namespace kvcts::cli {
namespace {

CaseResult tried(Outcome outcome, Verdict verdict, const char* message = "") {
  CaseResult result;
  result.id = "a/case";
  result.outcome = outcome;
  result.verdict = verdict;
  result.message = message;
  return result;
}
const CaseResult good = tried(Outcome::pass, Verdict::as_expected),
                 bad = tried(Outcome::fail, Verdict::unexpected, "7 wrong bytes");

std::optional<CaseResult> folded(const std::vector<CaseResult>& tries, bool retry = false) {
  Fold fold(retry);
  for (const CaseResult& one : tries) fold.add(one);
  return fold.whole();
}

TEST(Fold, KeepsASingleTryUnchanged) {
  EXPECT_EQ(to_json(*folded({good})), to_json(good));
  EXPECT_EQ(to_json(*folded({bad})), to_json(bad));
  EXPECT_FALSE(folded({}).has_value());
}

TEST(Fold, ReportsMixedTriesAsFlakyInAnyOrder) {
  for (const auto& tries : {std::vector{good, bad, good}, {bad, good, good}, {good, good, bad}}) {
    const CaseResult whole = *folded(tries);
    EXPECT_EQ(whole.outcome, Outcome::flaky);
    EXPECT_EQ(whole.tries.made, 3);
    EXPECT_EQ(whole.tries.failed, 1);
    EXPECT_NE(whole.message.find("FAIL: 7 wrong bytes"), std::string::npos) << whole.message;
  }
  EXPECT_EQ(folded({bad, bad})->outcome, Outcome::fail);
  EXPECT_EQ(folded({good, good})->outcome, Outcome::pass);
}

TEST(Fold, CountsAWaivedFailureAsAFailedTry) {
  EXPECT_EQ(folded({good, tried(Outcome::fail, Verdict::xfail, "known")})->outcome, Outcome::flaky);
  EXPECT_EQ(folded({tried(Outcome::refused, Verdict::as_expected), good})->outcome, Outcome::pass) << "both are as expected";
}

TEST(Fold, KeepsAnErrorOfTheSuite) {
  const CaseResult error = tried(Outcome::error, Verdict::error, "the checker did not answer");
  for (const auto& tries : {std::vector{good, error}, {error, bad}, {bad, error, good}})
    EXPECT_EQ(folded(tries)->outcome, Outcome::error);
}

TEST(Fold, CountsOnlyTriesThatRan) {
  const CaseResult idle = tried(Outcome::not_run, Verdict::not_run), skipped = tried(Outcome::skipped, Verdict::skipped);
  EXPECT_EQ(folded({good, idle, skipped})->tries.made, 0);
  EXPECT_EQ(folded({skipped, skipped})->outcome, Outcome::skipped);
  EXPECT_FALSE(folded({idle}).has_value());
}

TEST(Fold, AddsRetriesToTheStoredResult) {
  const CaseResult whole = *folded({bad, good, bad}, true);
  EXPECT_EQ(whole.tries.retries, 2);
  CaseResult stored = whole;
  stored.verdict = Verdict::unexpected;
  const CaseResult more = *folded({stored, good}, true);
  EXPECT_EQ(more.tries.made, 4);
  EXPECT_EQ(more.tries.failed, 2);
  EXPECT_EQ(more.outcome, Outcome::flaky);
}

}  // namespace
}  // namespace kvcts::cli
