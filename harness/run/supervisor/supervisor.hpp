// Runs cases: executors of a checker and workers, a deadline for each phase enforced from outside, and evidence; a bad
// case does not stop the run.
//
//   Jobs jobs{ids.size(), [&](std::size_t i) { return ids[i]; }, [&](std::size_t i) { return resolve(i); }};
//   Summary summary = run_cases(jobs, options, {.on_result = [&](std::size_t, CaseResult&& result) { store.record(result);
//   }});
//
// Guarantees: on_result is called exactly once per job, from the thread that called run_cases, as soon as the result
// is final (after the case's memory was watched for late writes). Whatever code under test does, run_cases returns
// and leaves no process. If the calling process is killed, the launcher (process/launcher.hpp) ends everything.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/result.hpp"
#include "process/installation.hpp"
#include "run/supervisor/child.hpp"

namespace kvcts::supervisor {

/// The cases of a run, resolved one at a time when an executor is free: a run of 10^6 ids holds only those in flight.
struct Jobs {
  std::size_t count{0};
  std::function<std::string(std::size_t)> id;
  std::function<ResolvedCase(std::size_t)> resolve;  ///< may throw: the case's outcome is ERROR with the exception's text
};

/// Bytes of a region that the caller wants to see: hex as evidence "bytes" of the result. Guards are below 0 and
/// beyond the end.
struct Look {
  std::string region;  ///< "consumer/g0/r0/kv.L0"
  std::int64_t offset{0}, bytes{0};
};

struct Options {
  int jobs{1};                                          ///< executors
  std::string programs;                                 ///< folder of kvcts-launcher, -checker, -worker; "" = this program's
  std::array<std::int64_t, phase_count> deadline_ms{};  ///< where a case says 0; 0 here = 10 s
  std::int64_t start_deadline_ms{30'000};               ///< for a process to start and load its engine
  std::int64_t checker_deadline_ms{60'000};  ///< at least this for the checker's phases, which run no code under test
  std::int64_t canary_deadline_ms{30'000};   ///< for an engine's canary after a hang or a death
  int cases_per_worker{1000};                ///< then the worker is replaced
  std::size_t kept_engines{
      3};  ///< an executor keeps the workers of this many engines (and their options) besides the current one's
  std::uint64_t memory_limit{std::uint64_t{4} << 30};  ///< bytes of private memory per worker; 0 = unlimited
  std::size_t watched_cases{64};  ///< per executor: cases watched for late writes before the oldest is closed
  std::int64_t watched_bytes{std::int64_t{256} << 20};
  std::int64_t watch_ms{1000};  ///< minimum time to watch the memory of a sample of the cases; others use their settle
  bool watch_asked{false};      ///< the user set watch_ms: applies also to cases that set another time, or need none
  std::size_t watch_all{8};     ///< watch every case of a run with at most this many
  std::uint64_t watch_every{
      64};                  ///< in a larger run watch the first case per engine and direction, and one in this many by id
  std::vector<Host> hosts;  ///< {}, or the producer's and the consumer's
  std::vector<std::string> hidden;  ///< folders hidden from code under test: the run's own
  bool hold{false};                 ///< on a hang: keep everything alive until the worker ends or Ctrl-C
  bool stacks{true};                ///< take stacks on a hang
  std::function<std::string(const std::string& name)> tool{process::find_tool};  ///< finds what takes them
  bool trace_diagnosis{false};  ///< keep what the search for a cause tried as evidence "hypotheses"
  bool keep_plans{false};       ///< keep the plan (first copies, digest) as evidence "plan" even if the case passes
  /// Architectures of the devices that the suite itself found and this plug-in may use; {}: none, so nothing runs.
  std::function<std::vector<std::string>(const std::string& plugin)> devices;
  /// What the workers learn of a case; {}: worker_view().
  std::function<nlohmann::json(const ResolvedCase&)> view;
  /// Digest of a file. If set, fact "code" tells by its path what code the workers had mapped at completion, where that is
  /// not what the case before had.
  std::function<std::string(const std::string& path)> digest;
  std::optional<Look> look;   ///< at the end of each opened case
  bool handle_signals{true};  ///< SIGINT, SIGTERM and SIGHUP (unless ignored) end the run; restored afterwards
  std::int64_t tick_ms{0};    ///< how often on_tick is called; 0 = never
};

/// A case in flight, for progress displays.
struct Running {
  int executor{0};
  std::string id;
  Phase phase{};
  std::int64_t since_ns{0};  ///< CLOCK_MONOTONIC
};

struct Handlers {
  std::function<void(std::size_t job, CaseResult&&)> on_result;  ///< required
  std::function<void(const std::vector<Running>&)> on_tick;
  std::function<void(const std::string&)> on_message;  ///< lines for people: --hold, processes that SIGKILL did not end
  std::function<bool()> stop;                          ///< queried between cases: true = start no more (budget)
};

struct Summary {
  std::size_t finished{0}, not_run{0};
  bool interrupted{false};  ///< by a signal: the caller exits 130
  std::size_t workers_started{0};
  std::vector<std::string> left_behind;  ///< processes that SIGKILL did not end (state D), with their wait channel
};

/// Thrown by callers that can say nothing about half of their cases: the program then exits 130. Not derived from
/// std::exception, so no handler on the way mistakes it for an error.
struct Interrupted {};

/// How long the memory of a case is watched after its end in a run of few cases. 0 if nothing is left that could
/// write: the suite's own engine memcpy copies in the calling thread.
std::int64_t watch_ms(const ResolvedCase& resolved, const Options& options);

/// Throws std::system_error if the machine cannot run anything at all (no launcher program, no descriptors),
/// std::runtime_error if a host cannot be reached, and
/// whatever a handler throws (the run then ends with all its processes; jobs without a result have none).
Summary run_cases(const Jobs& jobs, const Options& options, const Handlers& handlers);

}  // namespace kvcts::supervisor
