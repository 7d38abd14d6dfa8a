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

TEST(Answers, PredictTheOutcomeOfTheRun) {
  const catalogue::Catalogue cases(checkout::source() + "/cases");
  matrix::Space space(cases);
  const char* wanted = std::getenv("KVCTS_PAIRS");
  const std::size_t pairs = wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 40;
  std::vector<std::string> layouts{"vllm-lbhnc",
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
                                   "kvbm-universal-tp"};
  const std::vector<std::string> connectors{"vllm-mooncake-0.33", "vllm-nixl-0.33", "block-copy", "head-slice-hnd",
                                            "reference"},
      dtypes{"bf16", "fp8_e4m3", "nvfp4"}, geometries{"", "", "nb-2-one", "gqa-8", "heads-eq-block", "heads-1"};
  std::mt19937 random(20);
  const auto any = [&](const auto& of) { return of[random() % of.size()]; };

  std::map<std::string, Answer> answers;
  std::vector<ResolvedCase> to_run;
  std::map<Verdict, int> seen;
  for (std::size_t tried = 0; to_run.size() < pairs && tried < 40 * pairs; ++tried) {
    Pair pair;
    const std::string dtype = any(dtypes);
    const auto side = [&](std::int64_t tp, std::int64_t bs) {
      Description d;
      d.layout = any(layouts), d.dtype = dtype, d.tp = tp, d.block_size = bs;
      return d;
    };
    pair.producer = side(std::int64_t{1} << random() % 3, 0);
    pair.consumer = side(random() % 3 ? pair.producer.tp : std::int64_t{1} << random() % 3, 0);
    if (random() % 2) pair.consumer.layout = pair.producer.layout;
    if (random() % 4 == 0) pair.consumer.block_size = 32;
    pair.connector = any(connectors);
    pair.geometry = any(geometries);
    const Answer answer = check(pair, {"cpu"}, cases).at(0);
    ++seen[answer.verdict];
    const bool computed = answer.verdict != Verdict::ambiguous && answer.by != "layout" && answer.by != "backend";
    if (!computed || !answers.emplace(answer.id, answer).second) continue;
    to_run.push_back(resolve(matrix::spec_from_id(space, answer.id), cases));
    to_run.back().settle_ms = 0;
  }
  ASSERT_EQ(to_run.size(), pairs);
  for (const Verdict verdict : {Verdict::compatible, Verdict::conversion, Verdict::refused, Verdict::wrong})
    EXPECT_GT(seen[verdict], 0) << name(verdict);

  const auto outcomes = supervisor::testing::run(to_run, supervisor::testing::test_options(checkout::build()));
  ASSERT_EQ(outcomes.results.size(), pairs);
  for (const CaseResult& ran : outcomes.results) {
    const Answer& answer = answers.at(ran.id);
    const std::string words = ran.id + "\n  said " + std::string(name(answer.verdict)) + ": " + answer.text + "\n  ran  " +
                              std::string(name(ran.outcome)) + ": " + ran.message;
    switch (answer.verdict) {
      case Verdict::compatible:
      case Verdict::conversion:
        EXPECT_EQ(ran.outcome, Outcome::pass) << words;
        break;
      case Verdict::wrong:
        EXPECT_EQ(ran.outcome, Outcome::fail) << words;
        EXPECT_EQ(ran.diagnosis.exact ? ran.diagnosis.fault_class : FaultClass::none, answer.fault_class) << words;
        break;
      default:  // a refusal, or an exception before any byte has moved
        EXPECT_TRUE(ran.outcome == Outcome::refused ||
                    (ran.outcome == Outcome::fail && ran.phase != Phase::compare && ran.wrong_bytes == 0))
            << words;
    }
  }
}

}  // namespace
}  // namespace kvcts::compat
