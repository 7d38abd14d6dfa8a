// Runs cases: lanes of a checker and workers, a deadline for each phase from outside, evidence, and the rest of the run goes
// on.
//
//   Jobs jobs{ids.size(), [&](std::size_t i) { return ids[i]; }, [&](std::size_t i) { return resolve(i); }};
//   Summary summary = run_cases(jobs, options, {.on_result = [&](std::size_t, CaseResult&& result) { store.record(result);
//   }});
//
// What is promised: on_result is called exactly once for each job, from the thread that called run_cases, as soon as the
// result is final (after the case's memory was watched for late writes). Whatever code under test does, run_cases comes
// back, and no process that it started is left. If the calling process is killed, the warden (process/warden.hpp) ends all
// that is left.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/result.hpp"

namespace kvcts::supervisor {

/// The cases of a run, resolved one at a time when a lane is free: a run of 10^6 ids holds only those in flight.
struct Jobs {
  std::size_t count{0};
  std::function<std::string(std::size_t)> id;
  std::function<ResolvedCase(std::size_t)> resolve;  ///< may throw: the case's outcome is ERROR with the exception's text
};

/// Bytes of a region that somebody wants to see: hex as evidence "bytes" of the result. Guards are below 0 and behind the
/// end.
struct Look {
  std::string region;  ///< "consumer/g0/r0/kv.L0"
  std::int64_t offset{0}, bytes{0};
};

struct Options {
  int jobs{1};           ///< lanes
  std::string programs;  ///< folder of kvcts-warden, -checker, -worker; "" = where this program lies
  std::array<std::int64_t, phase_count> deadline_ms{};  ///< where a case says 0; 0 here = 10 s
  std::int64_t start_deadline_ms{30'000};               ///< for a process to come up and load its engine
  std::int64_t checker_deadline_ms{60'000};  ///< at least this for the checker's phases, which run no code under test
  std::int64_t canary_deadline_ms{30'000};   ///< for an engine's canary after a hang or a death
  int cases_per_worker{1000};                ///< then the worker is replaced
  std::size_t kept_engines{
      3};  ///< a lane keeps the workers of this many engines (and their options) beside the present one's
  std::uint64_t memory_limit{std::uint64_t{4} << 30};  ///< bytes of private memory a worker may have; 0 = any
  std::size_t watched_cases{64};  ///< a lane: memory watched for late writes before the oldest is closed
  std::int64_t watched_bytes{std::int64_t{256} << 20};
  std::int64_t watch_ms{
      1000};                ///< how long the memory of a sample of the cases is watched, at least; the others': their settle
  bool watch_asked{false};  ///< watch_ms is what the user asked for: also for cases that say another time, or need none
  std::size_t watch_all{8};  ///< a run of at most so many cases is watched so as a whole
  std::uint64_t watch_every{
      64};  ///< of a larger one the first case of each engine and direction, and one in so many by its id
  std::vector<std::string> hidden;  ///< folders that code under test does not see: the run's own
  bool hold{false};                 ///< on a hang: keep everything alive until the worker ends or Ctrl-C
  bool stacks{true};                ///< take stacks on a hang
  bool keep_plans{false};           ///< keep the plan (first copies, digest) as evidence "plan" also of cases that pass
  /// Architectures of the devices that the suite itself found and this plug-in may use; {}: none, so that nothing is
  /// executed.
  std::function<std::vector<std::string>(const std::string& plugin)> devices;
  std::optional<Look> look;   ///< at the end of each case that was opened
  bool handle_signals{true};  ///< SIGINT, SIGTERM and SIGHUP (unless ignored) end the run; restored afterwards
  std::int64_t tick_ms{0};    ///< how often on_tick is called; 0 = never
};

/// A case in flight, for progress displays.
struct Running {
  int lane{0};
  std::string id;
  Phase phase{};
  std::int64_t since_ns{0};  ///< CLOCK_MONOTONIC
};

struct Handlers {
  std::function<void(std::size_t job, CaseResult&&)> on_result;  ///< required
  std::function<void(const std::vector<Running>&)> on_tick;
  std::function<void(const std::string&)> on_message;  ///< lines for people: --hold, processes that would not die
  std::function<bool()> stop;                          ///< asked between cases: true = begin no more (budget)
};

struct Summary {
  std::size_t finished{0}, not_run{0};
  bool interrupted{false};  ///< by a signal: the caller exits 130
  std::size_t workers_started{0};
  std::vector<std::string> left_behind;  ///< processes that SIGKILL did not end (state D), with their wait channel
};

/// What a caller throws that has nothing to say about half of its cases: the program then exits 130. Not an exception of
/// std, so that nobody takes it for an error on the way.
struct Interrupted {};

/// How long the memory of a case is watched behind its end in a run of few cases. 0 where nobody is left to write: the
/// suite's own engine memcpy copies in the thread that calls it.
std::int64_t watch_ms(const ResolvedCase& resolved, const Options& options);

/// Throws std::system_error if the machine cannot run anything at all (no warden program, no descriptors), and whatever a
/// handler throws (the run ends then, all processes with it; jobs without a result have none).
Summary run_cases(const Jobs& jobs, const Options& options, const Handlers& handlers);

}  // namespace kvcts::supervisor
