// Whole runs through real processes with engines that behave.
#include "run/supervisor/supervisor.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <set>

#include "run/supervisor/testing/runs.hpp"
#include "testing/checkout.hpp"

namespace kvcts::supervisor {
namespace {

using namespace kvcts::supervisor::testing;

Options quick() { return test_options(checkout::build()); }

TEST(Supervisor, PassesOneCaseAndFillsEveryField) {
  const NothingLeft nothing_left;
  const Outcomes outcomes = run({small_case("a")}, quick());
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

// Between two cases with workers: starts no worker, and leaves existing ones unchanged.
TEST(Supervisor, RunsAScriptedCaseWithoutAWorker) {
  const NothingLeft nothing_left;
  ResolvedCase scenario;
  scenario.id = "scripted";
  scenario.arch = "cpu";
  scenario.dtype = "bf16";
  scenario.performer = Performer::machine;
  scenario.facts = {{"scripted", true}};
  scenario::Memory memory;
  memory.bytes = 64;
  scenario.scenario.memories["P"] = memory;
  scenario::Step fill;
  fill.name = "fill1";
  fill.intended.op = scenario::Operation::fill, fill.intended.value = "a5", fill.intended.bytes = 16;
  fill.intended.to.emplace_back().of = "P";
  scenario.scenario.steps = {fill};
  ResolvedCase faulty = scenario;
  faulty.id = "faulty";
  faulty.scenario.steps[0].as_intended = false;
  faulty.scenario.steps[0].actual = {fill.intended};
  faulty.scenario.steps[0].actual[0].bytes = 12;

  const Outcomes outcomes = run({small_case("a"), scenario, small_case("b"), faulty}, quick());
  EXPECT_EQ(outcomes.of("scripted").outcome, Outcome::pass) << outcomes.of("scripted").message;
  EXPECT_EQ(outcomes.of("scripted").worker, "");
  EXPECT_EQ(outcomes.of("scripted").evidence, Evidence::modelled);
  EXPECT_GT(outcomes.of("scripted").checked_bytes, 64);
  const CaseResult wrong = outcomes.of("faulty");
  EXPECT_EQ(wrong.outcome, Outcome::fail) << wrong.message;
  EXPECT_EQ(wrong.wrong_bytes, 4);
  EXPECT_EQ(wrong.phase, Phase::compare);
  EXPECT_EQ(outcomes.of("a").outcome, Outcome::pass);
  EXPECT_EQ(outcomes.of("b").outcome, Outcome::pass);
  EXPECT_EQ(outcomes.of("b").ran_before, "a");
  EXPECT_EQ(outcomes.summary.workers_started, 1U);
}

TEST(Supervisor, RunsTwoProcessesInBothDirections) {
  const NothingLeft nothing_left;
  std::vector<ResolvedCase> cases;
  for (const std::string op : {"write", "read"}) {
    cases.push_back(small_case("shm/" + op, "shm", 2));
    cases.push_back(small_case("memcpy/" + op));
    cases[cases.size() - 1].op = cases[cases.size() - 2].op = direction_from_name(op).value();
  }
  const Outcomes outcomes = run(cases, quick());
  for (const CaseResult& result : outcomes.results)
    EXPECT_EQ(result.outcome, Outcome::pass) << result.id << ": " << result.message;
  EXPECT_EQ(outcomes.of("shm/write").worker, "lane0/worker1 lane0/worker2");
}

TEST(Supervisor, ReportsEachJobOnceAtAnyParallelism) {
  const NothingLeft nothing_left;
  std::vector<ResolvedCase> cases;
  for (int i = 0; i < 300; ++i)
    cases.push_back(small_case("c" + std::to_string(i), i % 3 == 0 ? "shm" : "memcpy", i % 3 == 0 ? 2 : 1));
  for (const int executors : {1, 3}) {
    Options options = quick();
    options.jobs = executors;
    const Outcomes outcomes = run(cases, options);
    std::set<std::string> ids;
    for (const CaseResult& result : outcomes.results) {
      EXPECT_TRUE(ids.insert(result.id).second) << result.id;
      EXPECT_EQ(result.outcome, Outcome::pass) << result.message;
    }
    EXPECT_EQ(ids.size(), cases.size());
  }
}

TEST(Supervisor, ReusesAndReplacesWorkers) {
  std::vector<ResolvedCase> cases;
  for (int i = 0; i < 25; ++i) cases.push_back(small_case("c" + std::to_string(i)));
  cases.push_back(small_case("other", "shm", 2));
  Options options = quick();
  options.cases_per_worker = 10;
  const Outcomes outcomes = run(cases, options);
  EXPECT_EQ(outcomes.summary.workers_started, 5u);
  EXPECT_EQ(outcomes.of("c0").worker, "lane0/worker1");
  EXPECT_EQ(outcomes.of("c9").worker, "lane0/worker1");
  EXPECT_EQ(outcomes.of("c9").worker_ordinal, 9);
  EXPECT_EQ(outcomes.of("c9").ran_before, "c8");
  EXPECT_EQ(outcomes.of("c10").worker, "lane0/worker2");
  EXPECT_EQ(outcomes.of("c10").worker_ordinal, 0);
  EXPECT_EQ(outcomes.of("c10").ran_before, "");
  EXPECT_EQ(outcomes.of("other").worker, "lane0/worker4 lane0/worker5");
}

TEST(Supervisor, PassesACaseOfSeveralPasses) {
  ResolvedCase c = small_case("passes");
  c.passes = 3;
  const Outcomes outcomes = run({c, small_case("one")}, quick());
  EXPECT_EQ(outcomes.of("passes").outcome, Outcome::pass) << outcomes.of("passes").message;
  EXPECT_EQ(outcomes.of("one").outcome, Outcome::pass);
}

TEST(Supervisor, ContinuesAfterAnErrorOfTheSuite) {
  std::vector<ResolvedCase> cases{small_case("good1"), small_case("no engine"), small_case("no connector"),
                                  small_case("good2")};
  cases[1].engine.plugin = "kvcts_engine_that_is_not_there";
  cases[2].connector.kind = "nonsense";
  const Jobs jobs{5, [&](std::size_t i) { return i < 4 ? cases[i].id : "unresolvable"; },
                  [&](std::size_t i) {
                    if (i == 4) throw std::runtime_error("no such layout");
                    return cases[i];
                  }};
  std::map<std::string, CaseResult> results;
  const Summary summary = run_cases(jobs, quick(),
                                    {.on_result = [&](std::size_t, CaseResult&& r) { results[r.id] = std::move(r); },
                                     .on_tick = {},
                                     .on_message = {},
                                     .stop = {}});
  EXPECT_EQ(summary.finished, 5u);
  EXPECT_EQ(results["good1"].outcome, Outcome::pass);
  EXPECT_EQ(results["good2"].outcome, Outcome::pass);
  EXPECT_EQ(results["no engine"].outcome, Outcome::skipped) << results["no engine"].message;
  EXPECT_NE(results["no engine"].message.find("kvcts_engine_that_is_not_there"), std::string::npos);
  EXPECT_EQ(results["no connector"].outcome, Outcome::error);
  EXPECT_NE(results["no connector"].message.find("nonsense"), std::string::npos) << results["no connector"].message;
  EXPECT_EQ(results["unresolvable"].outcome, Outcome::error);
  EXPECT_EQ(results["unresolvable"].message, "no such layout");
}

TEST(Supervisor, LeavesCasesBeyondTheBudgetNotRun) {
  std::vector<ResolvedCase> cases;
  for (int i = 0; i < 20; ++i) cases.push_back(small_case("c" + std::to_string(i)));
  int asked = 0;
  Handlers handlers;
  handlers.stop = [&] { return ++asked > 7; };
  const Outcomes outcomes = run(cases, quick(), handlers);
  EXPECT_EQ(outcomes.results.size(), 20u);
  EXPECT_EQ(outcomes.summary.finished, 7u);
  EXPECT_EQ(outcomes.summary.not_run, 13u);
  EXPECT_EQ(outcomes.of("c19").outcome, Outcome::not_run);
  EXPECT_FALSE(outcomes.summary.interrupted);
}

TEST(Supervisor, EndsTheRunAtOnceOnAnInterrupt) {
  const NothingLeft nothing_left;
  std::vector<ResolvedCase> cases;
  for (int i = 0; i < 5000; ++i) cases.push_back(small_case("c" + std::to_string(i)));
  Options options = quick();
  options.handle_signals = true;
  options.jobs = 2;
  std::size_t seen = 0;
  Handlers handlers;
  handlers.on_result = [&](std::size_t, CaseResult&&) {
    if (++seen == 20) ::raise(SIGINT);
  };
  const Outcomes outcomes = run(cases, options, handlers);
  EXPECT_TRUE(outcomes.summary.interrupted);
  EXPECT_EQ(outcomes.results.size(), cases.size());
  EXPECT_GE(outcomes.summary.finished, 20u);
  EXPECT_GT(outcomes.summary.not_run, 4000u);
  EXPECT_EQ(outcomes.of("c4999").message, "interrupted");
}

TEST(Supervisor, ShowsRunningCasesInTicks) {
  std::vector<ResolvedCase> cases;
  for (int i = 0; i < 50; ++i) cases.push_back(small_case("c" + std::to_string(i)));
  Options options = quick();
  options.tick_ms = 1;
  std::size_t ticks = 0, named = 0;
  Handlers handlers;
  handlers.on_tick = [&](const std::vector<Running>& running) {
    ++ticks;
    for (const Running& one : running) named += one.id.starts_with("c");
  };
  run(cases, options, handlers);
  EXPECT_GT(ticks, 0u);
  EXPECT_GT(named, 0u);
}

TEST(Supervisor, EndsTheRunIfAHandlerThrows) {
  const NothingLeft nothing_left;
  std::vector<ResolvedCase> cases;
  for (int i = 0; i < 2000; ++i) cases.push_back(small_case("c" + std::to_string(i)));
  int seen = 0;
  Handlers handlers;
  handlers.on_result = [&](std::size_t, CaseResult&&) {
    if (++seen == 5) throw std::runtime_error("the disk is full");
  };
  EXPECT_THROW(run(cases, quick(), handlers), std::runtime_error);
  EXPECT_EQ(seen, 5);
}

TEST(Supervisor, FailsToStartWithoutItsPrograms) {
  Options options = quick();
  options.programs = "/nowhere";
  EXPECT_THROW(run({small_case("c")}, options), std::system_error);
}

/// Repeatedly kills a process of the run chosen by `choose`, from within on_result.
Outcomes run_with_kills(const std::string& command, std::size_t count, int kills) {
  std::vector<ResolvedCase> cases;
  for (std::size_t i = 0; i < count; ++i)
    cases.push_back(small_case("c" + std::to_string(i), i % 2 == 0 ? "memcpy" : "shm", i % 2 == 0 ? 1 : 2));
  Options options = quick();
  options.jobs = 2;
  int done = 0;
  std::size_t seen = 0;
  Handlers handlers;
  handlers.on_result = [&](std::size_t, CaseResult&&) {
    if (++seen % 15 != 0 || done >= kills) return;
    for (const process::ProcessStat& stat : process::descendants(process::all_processes(), {::getpid()})) {
      if (stat.dead() || stat.command != command) continue;
      ::kill(stat.pid, SIGKILL);
      ++done;
      return;
    }
  };
  Outcomes outcomes = run(cases, options, handlers);
  EXPECT_GT(done, 0);
  std::set<std::string> ids;
  for (const CaseResult& result : outcomes.results) {
    EXPECT_TRUE(ids.insert(result.id).second) << result.id;
    EXPECT_EQ(result.outcome, Outcome::pass) << result.id << ": " << result.message;
  }
  EXPECT_EQ(ids.size(), count);
  return outcomes;
}

TEST(Supervisor, KeepsResultsIfWorkersAreKilled) {
  const NothingLeft nothing_left;
  run_with_kills("kvcts-worker", 300, 10);
}
TEST(Supervisor, KeepsResultsIfCheckersAreKilled) {
  const NothingLeft nothing_left;
  run_with_kills("kvcts-checker", 300, 5);
}
TEST(Supervisor, KeepsResultsIfTheLauncherIsKilled) {
  const NothingLeft nothing_left;
  run_with_kills("kvcts-launcher", 300, 3);
}

}  // namespace
}  // namespace kvcts::supervisor
