// Shows that the watchdog works: engine "fixture" misbehaves in every known way, each gets its exact outcome, and the
// rest of the run continues.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "process/launcher.hpp"
#include "run/supervisor/testing/runs.hpp"
#include "testing/checkout.hpp"

namespace kvcts::supervisor {
namespace {

using namespace kvcts::supervisor::testing;
using nlohmann::json;

struct Row {
  std::string name;
  json options;
  Outcome outcome;
  std::optional<Phase> phase;
  std::string what;      ///< signal, hang kind or fault class
  std::string contains;  ///< in the message
  int processes{2};
};

const std::int64_t short_deadline_ms = 1500;

std::vector<Row> rows() {
  const auto fault = [](const std::string& name, const std::string& phase = "transfer") {
    return json{{"fault", name}, {"phase", phase}, {"side", "producer"}};
  };
  return {
      {"spin", fault("spin"), Outcome::hang, Phase::transfer, "runaway", "no byte had arrived"},
      {"spin-both", fault("spin"), Outcome::hang, Phase::transfer, "runaway", "no byte had arrived", 1},
      {"read", fault("sleep_in_read"), Outcome::hang, Phase::transfer, "stalled", "no byte had arrived"},
      {"read-midway", fault("sleep_in_read", "midway"), Outcome::hang, Phase::transfer, "stalled", " bytes had arrived"},
      {"read-complete", fault("sleep_in_read", "complete"), Outcome::hang, std::nullopt, "stalled",
       "bytes had arrived, the completion never did"},
      {"read-register", fault("sleep_in_read", "register"), Outcome::hang, Phase::registration, "stalled", "(producer)"},
      {"read-open", fault("sleep_in_read", "open"), Outcome::hang, Phase::registration, "stalled", "(producer)"},
      {"read-connect", fault("sleep_in_read", "connect"), Outcome::hang, Phase::registration, "stalled", "(producer)"},
      {"never", fault("never_complete"), Outcome::hang, Phase::complete, "stalled",
       "bytes had arrived, the completion never did"},
      {"sigterm", fault("ignore_sigterm"), Outcome::hang, Phase::transfer, "stalled", ""},
      {"escape-hang", fault("fork_escape_and_hang"), Outcome::hang, Phase::transfer, "stalled", ""},
      {"sigstop", fault("sigstop"), Outcome::hang, Phase::transfer, "stalled", "stopped"},
      {"flood-endless",
       {{"fault", "flood_stdout"}, {"bytes", "0"}, {"side", "producer"}},
       Outcome::hang,
       Phase::transfer,
       "",
       ""},
      {"flood", fault("flood_stdout"), Outcome::pass, std::nullopt, "", ""},
      {"escape", fault("fork_escape"), Outcome::fail, Phase::complete, "crash", "left a process behind"},
      {"escape-both", fault("fork_escape"), Outcome::fail, Phase::complete, "crash", "left a process behind", 1},
      {"memory", fault("eat_memory"), Outcome::crash, Phase::transfer, "memory limit", "256 MiB"},
      {"segv", fault("segv"), Outcome::crash, Phase::transfer, "SIGSEGV", "no byte had arrived"},
      {"segv-midway", fault("segv", "midway"), Outcome::crash, Phase::transfer, "SIGSEGV", " bytes had arrived"},
      {"segv-both", fault("segv"), Outcome::crash, Phase::transfer, "SIGSEGV", "no byte had arrived", 1},
      {"segv-open", fault("segv", "open"), Outcome::crash, Phase::registration, "SIGSEGV", "(producer)"},
      {"abrt", fault("abrt"), Outcome::crash, Phase::transfer, "SIGABRT", ""},
      {"bus", fault("bus"), Outcome::crash, Phase::transfer, "SIGBUS", ""},
      {"exit0", fault("exit0"), Outcome::crash, Phase::transfer, "exit 0", ""},
      {"garbage", fault("garbage"), Outcome::crash, Phase::transfer, "protocol", ""},
      {"late",
       {{"fault", "late_write"}, {"side", "producer"}, {"delay_us", "60000"}},
       Outcome::fail,
       Phase::complete,
       "false-success",
       " bytes changed after completion"},
      {"refuse", fault("refuse"), Outcome::refused, Phase::transfer, "", "refused on purpose"},
      {"refuse-midway", fault("refuse", "midway"), Outcome::fail, Phase::transfer, "", "after bytes had moved"},
      {"partial", fault("partial"), Outcome::fail, Phase::compare, "", "wrong bytes"},
      {"touch-source", fault("touch_source"), Outcome::fail, Phase::compare, "", "in the source"},
      {"no-such-fault", fault("nonsense"), Outcome::refused, Phase::registration, "", "no fault \"nonsense\""},
      {"none", json::object(), Outcome::pass, std::nullopt, "", ""},
  };
}

ResolvedCase fixture_case(const Row& row) {
  ResolvedCase c = small_case(row.name, "fixture", row.processes, row.options);
  c.settle_ms = 400;
  return c;
}

Options fixture_options() {
  Options options = test_options(checkout::build());
  options.memory_limit = 256u << 20;
  for (const Phase phase : {Phase::registration, Phase::plan, Phase::transfer, Phase::complete, Phase::read_back})
    options.deadline_ms[static_cast<std::size_t>(phase)] = short_deadline_ms;
  options.start_deadline_ms = 5000;
  return options;
}

void expect(const Row& row, const CaseResult& result) {
  SCOPED_TRACE(row.name + ": " + result.message);
  EXPECT_EQ(name(result.outcome), name(row.outcome));
  if (row.phase) {
    EXPECT_EQ(result.phase, row.phase) << (result.phase ? name(*result.phase) : "none");
  }
  if (row.outcome == Outcome::crash) {
    EXPECT_EQ(result.signal, row.what);
  }
  if (row.outcome == Outcome::hang && !row.what.empty()) {
    EXPECT_EQ(result.hang ? name(*result.hang) : "", row.what);
  }
  if (row.outcome == Outcome::fail && !row.what.empty()) {
    EXPECT_EQ(name(result.diagnosis.fault_class), row.what);
  }
  EXPECT_NE(result.message.find(row.contains), std::string::npos);
  EXPECT_FALSE(result.worker.empty());
  if (row.outcome == Outcome::hang) {
    EXPECT_NE(evidence(result, "stack").find('#'), std::string::npos) << evidence(result, "stack");
    EXPECT_NE(evidence(result, "status").find("wchan"), std::string::npos);
    EXPECT_NE(result.diagnosis.fault_class, FaultClass::none);
  }
  if (row.outcome == Outcome::crash && row.what.starts_with("SIG")) {
    EXPECT_NE(evidence(result, "stderr").find("stack at signal"), std::string::npos) << evidence(result, "stderr");
  }
}

// One run with everything in it, good cases between the bad ones, two executors.
TEST(Fixtures, GetTheirExactOutcomeWhileTheRunContinues) {
  const NothingLeft nothing_left;
  std::vector<ResolvedCase> cases;
  const std::vector<Row> all = rows();
  for (std::size_t i = 0; i < all.size(); ++i) {
    cases.push_back(fixture_case(all[i]));
    cases.push_back(small_case("good" + std::to_string(i), i % 2 == 0 ? "memcpy" : "fixture", i % 2 == 0 ? 1 : 2));
  }
  Options options = fixture_options();
  options.jobs = 2;
  const Outcomes outcomes = run(cases, options);
  ASSERT_EQ(outcomes.results.size(), cases.size());
  for (const Row& row : all) expect(row, outcomes.of(row.name));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const CaseResult& good = outcomes.of("good" + std::to_string(i));
    EXPECT_EQ(good.outcome, Outcome::pass) << good.id << ": " << good.message;
  }
  EXPECT_TRUE(outcomes.summary.left_behind.empty());
  EXPECT_FALSE(outcomes.summary.interrupted);
  EXPECT_EQ(outcomes.summary.finished, cases.size());
}

TEST(Fixtures, KeepTheLast64KiBOfAFlood) {
  const NothingLeft nothing_left;
  const Outcomes outcomes =
      run({small_case("flood", "fixture", 1, {{"fault", "flood_stdout"}, {"bytes", "0"}})}, fixture_options());
  const std::string kept = evidence(outcomes.of("flood"), "stdout");
  EXPECT_EQ(outcomes.of("flood").outcome, Outcome::hang);
  EXPECT_GT(kept.size(), 60u * 1024);
  EXPECT_LE(kept.size(), 64u * 1024);
  EXPECT_TRUE(kept.starts_with("(")) << kept.substr(0, 100);
  EXPECT_NE(kept.find("earlier bytes are not kept"), std::string::npos);
}

TEST(Fixtures, ALateWriteIsCaughtAcrossAnEngineChange) {
  const NothingLeft nothing_left;
  Options options = fixture_options();
  options.kept_engines = 0;  // the next case must evict the fixture's worker, but not too early
  ResolvedCase late = small_case("late", "fixture", 1, {{"fault", "late_write"}, {"delay_us", "100000"}});
  late.settle_ms = 500;
  const Outcomes outcomes = run({late, small_case("next")}, options);
  EXPECT_EQ(outcomes.of("late").outcome, Outcome::fail) << outcomes.of("late").message;
  EXPECT_EQ(outcomes.of("late").diagnosis.fault_class, FaultClass::false_success);
  EXPECT_EQ(outcomes.of("next").outcome, Outcome::pass);
}

// A hang that leaves a device broken must not give later cases false outcomes.
TEST(Fixtures, AnEngineIsExcludedIfItsCanaryFails) {
  const NothingLeft nothing_left;
  const auto hang = [](const std::string& id, const std::string& fault, const std::string& canary) {
    return small_case(id, "fixture", 1, {{"fault", fault}, {"canary", canary}});
  };
  const std::vector<ResolvedCase> after{small_case("same", "fixture", 1), small_case("other", "memcpy", 1)};
  const auto run_with = [&](const ResolvedCase& first) {
    Options options = fixture_options();
    options.canary_deadline_ms = 1000;
    return run({first, after[0], after[1]}, options);
  };
  const Outcomes well = run_with(hang("first", "spin", "passes"));
  EXPECT_TRUE(evidence(well.of("first"), "canary").starts_with("passes after")) << evidence(well.of("first"), "canary");
  EXPECT_EQ(well.of("same").outcome, Outcome::pass);

  const Outcomes broken = run_with(hang("first", "segv", "fails"));
  EXPECT_EQ(broken.of("first").outcome, Outcome::crash);
  EXPECT_NE(evidence(broken.of("first"), "canary").find("the canary fails on purpose"), std::string::npos);
  EXPECT_EQ(broken.of("same").outcome, Outcome::skipped);
  EXPECT_NE(broken.of("same").message.find("after first the canary of kvcts_engine_fixture failed"), std::string::npos)
      << broken.of("same").message;
  EXPECT_EQ(broken.of("other").outcome, Outcome::pass) << "another engine has nothing to do with it";

  const Outcomes killed = run_with(hang("first", "segv", "killed"));
  EXPECT_NE(evidence(killed.of("first"), "canary").find("a signal killed its process, 3 times"), std::string::npos)
      << "what kills a process from outside is not the engine's fault: " << evidence(killed.of("first"), "canary");

  const Outcomes stuck = run_with(hang("first", "spin", "hangs"));
  EXPECT_NE(evidence(stuck.of("first"), "canary").find("did not end within 1000 ms"), std::string::npos)
      << evidence(stuck.of("first"), "canary");
  EXPECT_EQ(stuck.of("same").outcome, Outcome::skipped);
}

TEST(Fixtures, AHangReportsTheMissingStackTool) {
  const NothingLeft nothing_left;
  Options options = fixture_options();
  options.tool = [](const std::string&) { return ""; };
  const Outcomes outcomes = run({small_case("hang", "fixture", 1, {{"fault", "spin"}})}, options);
  EXPECT_EQ(outcomes.of("hang").outcome, Outcome::hang);
  EXPECT_NE(evidence(outcomes.of("hang"), "stack").find("not installed"), std::string::npos);
}

TEST(Fixtures, AHangReportsWhyTracingWasRefused) {
  const NothingLeft nothing_left;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kvcts-tools-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (const std::string tool : {"eu-stack", "gdb"}) {
    std::ofstream(folder / tool) << "#!/bin/sh\necho " << tool << ": ptrace: Operation not permitted >&2; exit 1\n";
    std::filesystem::permissions(folder / tool, std::filesystem::perms::owner_all);
  }
  Options options = fixture_options();
  options.tool = [&](const std::string& name) { return (folder / name).string(); };
  const Outcomes outcomes = run({small_case("hang", "fixture", 1, {{"fault", "spin"}})}, options);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(outcomes.of("hang").outcome, Outcome::hang);
  EXPECT_NE(evidence(outcomes.of("hang"), "stack").find("gdb: ptrace: Operation not permitted"), std::string::npos);
}

TEST(Fixtures, AHeldCaseRunsUntilCtrlC) {
  const NothingLeft nothing_left;
  Options options = fixture_options();
  options.hold = true;
  options.handle_signals = true;
  pid_t held = 0;
  bool alive = false;
  std::vector<std::string> lines;
  Handlers handlers;
  handlers.on_message = [&](const std::string& line) {
    lines.push_back(line);
    const std::size_t at = line.find("gdb -p ");
    if (at != std::string::npos) held = std::stoi(line.substr(at + 7));
    if (line.find("Ctrl-C") == std::string::npos) return;
    alive = process::read_stat(held).has_value();
    ::raise(SIGINT);
  };
  const Outcomes outcomes =
      run({small_case("hang", "fixture", 1, {{"fault", "sleep_in_read"}}), small_case("next")}, options, handlers);
  EXPECT_TRUE(alive);
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find("held: hang hangs in lane0/worker1"), std::string::npos) << lines[0];
  EXPECT_EQ(outcomes.of("hang").outcome, Outcome::hang);
  EXPECT_EQ(outcomes.of("next").outcome, Outcome::pass);
  EXPECT_FALSE(outcomes.summary.interrupted);
}

TEST(Fixtures, AnInterruptEndsAHang) {
  const NothingLeft nothing_left;
  Options options = fixture_options();
  options.handle_signals = true;
  options.deadline_ms.fill(600'000);
  options.tick_ms = 20;
  Handlers handlers;
  handlers.on_tick = [&](const std::vector<Running>& running) {
    if (!running.empty() && running[0].phase == Phase::transfer) ::raise(SIGTERM);
  };
  const Outcomes outcomes =
      run({small_case("hang", "fixture", 2, {{"fault", "fork_escape_and_hang"}}), small_case("next")}, options, handlers);
  EXPECT_TRUE(outcomes.summary.interrupted);
  EXPECT_EQ(outcomes.of("hang").outcome, Outcome::not_run);
  EXPECT_EQ(outcomes.of("next").outcome, Outcome::not_run);
}

// The supervisor is killed at any moment of a run in which code under test escapes and hangs: nothing survives.
TEST(Fixtures, LeaveNoProcessAfterAKilledSupervisor) {
  const std::vector<std::string> names_before = shared_memory_names();
  for (int round = 0; round < 12; ++round) {
    const pid_t supervisor = ::fork();
    if (supervisor == 0) {
      std::vector<ResolvedCase> cases;
      for (int i = 0; i < 40; ++i)
        cases.push_back(small_case("g" + std::to_string(i), i % 2 == 0 ? "shm" : "memcpy", i % 2 == 0 ? 2 : 1));
      cases.push_back(small_case("hang", "fixture", 2, {{"fault", "fork_escape_and_hang"}}));
      Options options = test_options(checkout::build());
      options.jobs = 2;
      run(cases, options);
      ::_exit(1);
    }
    ::usleep(static_cast<useconds_t>(1000 + round * round * 4000));
    ::kill(supervisor, SIGKILL);
    ::waitpid(supervisor, nullptr, 0);
    char mark[16];
    std::snprintf(mark, sizeof mark, "%x-", static_cast<unsigned>(supervisor));
    const auto left = [&] {
      std::vector<std::string> found;
      for (const process::ProcessStat& stat : process::all_processes())
        if (!stat.dead() && process::environment_of(stat.pid, process::mark_variable).starts_with(mark))
          found.push_back(stat.command);
      return found;
    };
    // A launcher with a pending request still starts the process and then ends it: empty once does not mean gone.
    int quiet = 0;
    for (int i = 0; i < 10'000 && quiet < 150; ++i) {
      quiet = left().empty() ? quiet + 1 : 0;
      ::usleep(2000);
    }
    EXPECT_GE(quiet, 150) << "round " << round << ": still there: " << ::testing::PrintToString(left());
  }
}

}  // namespace
}  // namespace kvcts::supervisor
