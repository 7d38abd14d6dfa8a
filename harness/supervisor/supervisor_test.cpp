// Whole runs through real processes with the engines memcpy and shm.
#include "supervisor/supervisor.hpp"

#include <gtest/gtest.h>

#include <map>

#include "supervisor/testing/small_case.hpp"

namespace kvcts::supervisor {
namespace {

using testing::small_case;

struct Outcomes {
  std::vector<CaseResult> results;
  Summary summary;
  const CaseResult& of(const std::string& id) const {
    for (const CaseResult& result : results)
      if (result.id == id) return result;
    throw std::runtime_error("no result of " + id);
  }
};

Options quick() {
  Options options;
  options.programs = std::string(KVCTS_BINARY_DIR) + "/bin";
  options.handle_signals = false;
  return options;
}

Outcomes run(std::vector<ResolvedCase> cases, Options options = quick()) {
  Outcomes outcomes;
  const Jobs jobs{cases.size(), [&](std::size_t i) { return cases[i].id; }, [&](std::size_t i) { return cases[i]; }};
  Handlers handlers;
  handlers.on_result = [&](CaseResult&& result) { outcomes.results.push_back(std::move(result)); };
  outcomes.summary = run_cases(jobs, options, handlers);
  return outcomes;
}

TEST(Supervisor, OneCasePassesWithEveryFieldOfItsResult) {
  const Outcomes outcomes = run({small_case("a")});
  ASSERT_EQ(outcomes.results.size(), 1u);
  const CaseResult& result = outcomes.results[0];
  EXPECT_EQ(result.outcome, Outcome::pass) << result.message;
  EXPECT_GT(result.planned_bytes, 0);
  EXPECT_EQ(result.planned_bytes, result.moved_bytes);
  EXPECT_GT(result.checked_bytes, result.moved_bytes);
  EXPECT_EQ(result.worker, "lane0/worker1");
  EXPECT_EQ(result.worker_ordinal, 0);
  EXPECT_GT(result.peak_bytes, 0);
  EXPECT_GE(result.phases.size(), 8u);
  EXPECT_TRUE(result.facts.contains("engine_version"));
}

}  // namespace
}  // namespace kvcts::supervisor
