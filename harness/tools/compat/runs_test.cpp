// Every answer is what its case ends as when it is run: random pairs are answered here and run in processes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "case/resolve/resolve.hpp"
#include "matrix/ids.hpp"
#include "run/supervisor/testing/runs.hpp"
#include "testing/checkout.hpp"
#include "tools/compat/answer.hpp"

namespace kvcts::compat {
namespace {

const catalogue::Catalogue& committed() {
  static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
  return catalogue;
}

std::size_t wanted_pairs() {
  const char* wanted = std::getenv("KVCTS_PAIRS");
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 40;
}

Pair random_pair(std::mt19937& random) {
  static const std::vector<std::string> layouts{"vllm-lbhnc",
                                                "vllm-lbnhc",
                                                "vllm-blhnc",
                                                "vllm-lhbnc",
                                                "vllm-fa-nhd",
                                                "vllm-fa-hnd",
                                                "vllm-blocks-first-nhd",
                                                "vllm-xformers",
                                                "vllm-mla",
                                                "flashinfer-nhd",
                                                "flashinfer-hnd",
                                                "sglang-nhd",
                                                "sglang-page-first-direct",
                                                "trtllm-pool",
                                                "kvbm-universal-tp"},
      connectors{"vllm-mooncake-0.33", "vllm-nixl-0.33", "block-copy", "head-slice-hnd", "reference"},
      dtypes{"bf16", "fp8_e4m3", "nvfp4"}, geometries{"", "", "nb-2-one", "gqa-8", "heads-eq-block", "heads-1"};
  const auto any = [&](const std::vector<std::string>& of) { return of[random() % of.size()]; };
  Pair pair;
  for (Description* side : {&pair.producer, &pair.consumer})
    side->layout = any(layouts), side->tp = std::int64_t{1} << random() % 3, side->block_size = 0;
  pair.producer.dtype = pair.consumer.dtype = any(dtypes);
  if (random() % 3) pair.consumer.tp = pair.producer.tp;
  if (random() % 2) pair.consumer.layout = pair.producer.layout;
  if (random() % 4 == 0) pair.consumer.block_size = 32;
  pair.connector = any(connectors);
  pair.geometry = any(geometries);
  return pair;
}

/// Random pairs whose answer was computed from a plan, and how often each verdict was given to any pair.
struct Sample {
  std::map<std::string, Answer> answers;  ///< by case id
  std::map<Verdict, int> verdicts;
};

Sample random_sample() {
  std::mt19937 random(20);
  Sample sample;
  for (std::size_t tried = 0; sample.answers.size() < wanted_pairs() && tried < 40 * wanted_pairs(); ++tried) {
    const Answer answer = check(random_pair(random), {"cpu"}, committed()).at(0);
    ++sample.verdicts[answer.verdict];
    const bool computed = answer.verdict != Verdict::ambiguous && answer.by != "layout" && answer.by != "backend";
    if (computed) sample.answers.emplace(answer.id, answer);
  }
  return sample;
}

void expect_predicted(const Answer& answer, const CaseResult& ran) {
  SCOPED_TRACE(ran.id + "\n  predicted " + std::string(name(answer.verdict)) + ": " + answer.text + "\n  ran       " +
               std::string(name(ran.outcome)) + ": " + ran.message);
  switch (answer.verdict) {
    case Verdict::compatible:
    case Verdict::conversion:
      EXPECT_EQ(ran.outcome, Outcome::pass);
      break;
    case Verdict::wrong:
      EXPECT_EQ(ran.outcome, Outcome::fail);
      EXPECT_EQ(ran.diagnosis.exact ? ran.diagnosis.fault_class : FaultClass::none, answer.fault_class);
      break;
    default:  // a refusal, or an exception before any byte has moved
      EXPECT_TRUE(ran.outcome == Outcome::refused ||
                  (ran.outcome == Outcome::fail && ran.phase != Phase::compare && ran.wrong_bytes == 0));
  }
}

TEST(Answers, RandomPairsReceiveEveryComputedVerdict) {
  Sample sample = random_sample();
  EXPECT_EQ(sample.answers.size(), wanted_pairs());
  for (const Verdict verdict : {Verdict::compatible, Verdict::conversion, Verdict::refused, Verdict::wrong})
    EXPECT_GT(sample.verdicts[verdict], 0) << name(verdict);
}

TEST(Answers, PredictTheOutcomeOfTheRun) {
  const Sample sample = random_sample();
  matrix::Space space(committed());
  std::vector<ResolvedCase> to_run;
  for (const auto& [id, answer] : sample.answers) {
    to_run.push_back(resolve(matrix::spec_from_id(space, id), committed()));
    to_run.back().settle_ms = 0;
  }
  const auto outcomes = supervisor::testing::run(to_run, supervisor::testing::test_options(checkout::build()));
  ASSERT_EQ(outcomes.results.size(), wanted_pairs());
  for (const CaseResult& ran : outcomes.results) expect_predicted(sample.answers.at(ran.id), ran);
}

}  // namespace
}  // namespace kvcts::compat
