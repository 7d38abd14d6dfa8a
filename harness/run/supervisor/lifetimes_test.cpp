// After completion was reported: nothing may move in a call that ends something, nothing may have been missing,
// nothing may change, and the engine must end cleanly.
#include <gtest/gtest.h>

#include <map>

#include "run/supervisor/testing/runs.hpp"
#include "testing/checkout.hpp"

namespace kvcts::supervisor {
namespace {

using namespace kvcts::supervisor::testing;
using nlohmann::json;

struct Row {
  std::string id;
  json options;
  Outcome outcome;
  std::string what;      ///< signal, hang kind or fault class
  std::string contains;  ///< in the message
};

Options lifetime_options() {
  Options options = test_options(checkout::build());
  options.jobs = 4;
  for (const Phase phase : {Phase::registration, Phase::plan, Phase::transfer, Phase::complete})
    options.deadline_ms[static_cast<std::size_t>(phase)] = 3000;
  return options;
}

/// Each row in one process and between two, written and read, with a case of another engine between them.
void expect_all(const std::vector<Row>& rows) {
  const NothingLeft nothing_left;
  std::vector<ResolvedCase> cases;
  std::vector<const Row*> of;
  for (const Row& row : rows)
    for (const int processes : {1, 2})
      for (const char* op : {"write", "read"}) {
        json options = row.options;
        options["bytes"] = std::to_string(of.size());  // separate workers, because it is their last case
        cases.push_back(small_case(row.id + "/" + op + "/" + std::to_string(processes), "fixture", processes, options));
        cases.back().op = direction_from_name(op).value();
        of.push_back(&row);
      }
  for (int i = 0; i < 4; ++i) cases.push_back(small_case("good" + std::to_string(i)));
  const Outcomes outcomes = run(cases, lifetime_options());
  ASSERT_EQ(outcomes.results.size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CaseResult& result = outcomes.of(cases[i].id);
    SCOPED_TRACE(result.id + ": " + result.message);
    if (i >= of.size()) {
      EXPECT_EQ(result.outcome, Outcome::pass);
      continue;
    }
    const Row& row = *of[i];
    EXPECT_EQ(name(result.outcome), name(row.outcome));
    EXPECT_EQ(result.outcome == Outcome::pass ? Phase::complete : result.phase, Phase::complete);
    const std::string what = result.outcome == Outcome::crash ? result.signal
                             : result.hang                    ? std::string(name(*result.hang))
                                                              : std::string(name(result.diagnosis.fault_class));
    EXPECT_EQ(what, row.what);
    EXPECT_NE(result.message.find(row.contains), std::string::npos);
  }
}

json fault(const std::string& name, const std::string& phase) {
  return {{"fault", name}, {"phase", phase}, {"side", "any"}};
}

TEST(Lifetimes, BytesWrittenDuringTeardownFail) {
  const auto arrived = [](const std::string& phase, const std::string& call) {
    return Row{"deferred-" + phase, fault("deferred", phase), Outcome::fail, "read-before-ready", "arrived only in " + call};
  };
  expect_all({arrived("release", "release()"),
              arrived("remove_peer", "remove_peer()"),
              arrived("deregister", "deregister_region()"),
              arrived("close", "close()"),
              arrived("exit", "the exit of its process"),
              {"honest", json::object(), Outcome::pass, "", ""}});
}

// The worker reads within microseconds, unless it loses its CPU exactly then: so most cases must be caught, and one
// of each way.
TEST(Lifetimes, PrematureCompletionFails) {
  constexpr int times = 5;
  std::vector<ResolvedCase> cases;
  for (const char* us : {"100", "500", "2000"})
    for (const int processes : {1, 2})
      for (const char* op : {"write", "read"})
        for (int i = 0; i < times; ++i) {
          cases.push_back(small_case(std::string(us) + "/" + op + "/" + std::to_string(processes) + "/" + std::to_string(i),
                                     "fixture", processes, {{"fault", "early"}, {"delay_us", us}}));
          cases.back().op = direction_from_name(op).value();
        }
  const Outcomes outcomes = run(cases, lifetime_options());
  ASSERT_EQ(outcomes.results.size(), cases.size());
  std::map<std::string, int> caught;
  for (const ResolvedCase& c : cases) {
    const CaseResult& result = outcomes.of(c.id);
    SCOPED_TRACE(result.id + ": " + result.message);
    int& count = caught[c.id.substr(0, c.id.rfind('/'))];
    if (result.outcome == Outcome::pass) continue;
    ++count;
    EXPECT_EQ(result.outcome, Outcome::fail);
    EXPECT_EQ(result.phase, Phase::complete);
    EXPECT_EQ(result.diagnosis.fault_class, FaultClass::read_before_ready);
    EXPECT_TRUE(result.message.starts_with("completion was reported before the data had arrived")) << result.message;
  }
  int all = 0;
  for (const auto& [way, count] : caught) {
    EXPECT_GT(count, 0) << way;
    all += count;
  }
  EXPECT_GT(all, std::ssize(cases) / 2);
}

// A run of a few cases is watched completely; in a longer one, the first case of an engine is.
TEST(Lifetimes, LateWritesFail) {
  const auto late = [](const std::string& us, int processes, const std::string& op) {
    ResolvedCase c = small_case("late-" + us + "-" + op, "fixture", processes, {{"fault", "late_write"}, {"delay_us", us}});
    c.op = direction_from_name(op).value();
    return c;
  };
  const Outcomes few = run({late("400000", 2, "read"), late("900000", 1, "write")}, lifetime_options());
  std::vector<ResolvedCase> many{late("900000", 2, "write")};
  for (int i = 0; i < 20; ++i) many.push_back(small_case("good" + std::to_string(i)));
  Outcomes all = run(many, lifetime_options());
  all.results.insert(all.results.end(), few.results.begin(), few.results.end());
  int late_ones = 0;
  for (const CaseResult& result : all.results) {
    SCOPED_TRACE(result.id + ": " + result.message);
    if (!result.id.starts_with("late")) {
      EXPECT_EQ(result.outcome, Outcome::pass);
      continue;
    }
    ++late_ones;
    EXPECT_EQ(result.outcome, Outcome::fail);
    EXPECT_EQ(result.diagnosis.fault_class, FaultClass::false_success);
    EXPECT_NE(result.message.find(" bytes changed after completion"), std::string::npos);
  }
  EXPECT_EQ(late_ones, 3);
}

TEST(Lifetimes, DeathDuringTeardownIsACrash) {
  const std::vector<std::pair<std::string, std::string>> calls = {{"release", "release()"},
                                                                  {"remove_peer", "remove_peer()"},
                                                                  {"deregister", "deregister_region()"},
                                                                  {"close", "close()"},
                                                                  {"exit", "the exit of its process"}};
  std::vector<Row> rows;
  for (const auto& [phase, words] : calls)
    rows.push_back({"segv-" + phase, fault("segv", phase), Outcome::crash, "SIGSEGV", "in " + words});
  rows.push_back({"status-3", fault("exit3", "exit"), Outcome::crash, "exit 3", "in the exit of its process"});
  expect_all(rows);
}

TEST(Lifetimes, AHangDuringTeardownIsAHang) {
  std::vector<Row> rows;
  for (const auto& [phase, words] :
       {std::pair{"remove_peer", "remove_peer()"}, {"close", "close()"}, {"exit", "the exit of its process"}})
    rows.push_back({std::string("sleep-") + phase, fault("sleep_in_read", phase), Outcome::hang, "stalled",
                    std::string("in ") + words});
  expect_all(rows);
}

// A result that waits for its workers survives their replacement, and the following case is not blamed.
TEST(Lifetimes, OnlyTheLastCaseIsBlamedForTeardown) {
  std::vector<ResolvedCase> cases;
  for (int i = 0; i < 6; ++i) cases.push_back(small_case("c" + std::to_string(i), "fixture", 1, fault("segv", "close")));
  Options options = lifetime_options();
  options.jobs = 1;
  options.cases_per_worker = 3;
  const Outcomes outcomes = run(cases, options);
  ASSERT_EQ(outcomes.results.size(), cases.size());
  for (int i = 0; i < 6; ++i) {
    const CaseResult& result = outcomes.of("c" + std::to_string(i));
    EXPECT_EQ(result.outcome, i % 3 == 2 ? Outcome::crash : Outcome::pass) << result.id << ": " << result.message;
  }
}

// Released code that dies in its exit handlers: its entry declares it, and excuses nothing else.
TEST(Lifetimes, ADeclaredCrashAtExitIsAFact) {
  const auto known = [](const std::string& id, const std::string& what, const std::string& phase) {
    ResolvedCase c = small_case(id, "fixture", 1, fault(what, phase));
    c.engine.environment["KVCTS_KNOWN_END"] = "SIGSEGV";
    return c;
  };
  const Outcomes outcomes =
      run({known("known", "segv", "exit"), known("other-signal", "abrt", "exit"), known("other-call", "segv", "close")},
          lifetime_options());
  EXPECT_EQ(outcomes.of("known").outcome, Outcome::pass) << outcomes.of("known").message;
  EXPECT_TRUE(outcomes.of("known").facts.value("known_end", "").starts_with("SIGSEGV in the exit of its process"))
      << outcomes.of("known").facts.dump();
  EXPECT_EQ(outcomes.of("other-signal").outcome, Outcome::crash);
  EXPECT_EQ(outcomes.of("other-call").outcome, Outcome::crash);
}

TEST(Lifetimes, InvalidByteCountsFail) {
  const Outcomes outcomes = run({small_case("counts", "fixture", 1, {{"fault", "counts"}})}, lifetime_options());
  const CaseResult& result = outcomes.of("counts");
  EXPECT_EQ(result.outcome, Outcome::fail) << result.message;
  EXPECT_NE(result.message.find("bytes_written"), std::string::npos) << result.message;
}

}  // namespace
}  // namespace kvcts::supervisor
