// Shared by the lanes of a run: jobs and options, the event loop, the warden, and where results go.
#pragma once

#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "process/procfs.hpp"
#include "run/supervisor/child.hpp"
#include "run/supervisor/loop.hpp"
#include "run/supervisor/ports.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::supervisor {

/// Shared by the lanes of a run.
struct Run {
  Run(const Jobs& all, const Options& how, const Handlers& to, Loop& events, Link& warden, std::string folder)
      : jobs(all),
        options(how),
        handlers(to),
        loop(events),
        link(warden),
        programs(std::move(folder)),
        finished(all.count, false) {}

  const Jobs& jobs;
  const Options& options;
  const Handlers& handlers;
  Loop& loop;
  Link& link;
  process::PidWatch pids;
  Ports ports;
  std::string programs;
  const bool sandboxes{process::why_no_sandbox().empty()};
  std::size_t next_job{0};
  std::uint64_t next_key{1};
  std::int64_t worker_count{0};
  std::map<std::string, std::string> set_aside{};  ///< plug-ins whose canary failed, and its message
  std::set<std::string> diagnosed{};               ///< ids of cases whose cause was searched: not again in their next try
  std::set<std::string> without_canary{};          ///< plug-ins that have none
  std::set<std::string> watched_ways{};  ///< "ucx-shm read": ways to move bytes for which a case was already watched for
                                         // long
  bool stopping{false};                  ///< interrupted: everything ends now
  std::size_t holding{0};
  std::vector<bool> finished;
  Summary summary;
  std::exception_ptr error;  ///< of a handler of the caller: ends the run, and is thrown from run_cases

  std::optional<std::size_t> next();
  void emit(std::size_t job, CaseResult&& result);
  void fail(std::exception_ptr why) {
    if (!error) error = why;
    stopping = true;
  }
  void say(const std::string& line) const {
    if (handlers.on_message) handlers.on_message(line);
  }
};

/// The sandbox of a case: what its engine's entry requests, and paths that lie in folders that a sandbox replaces.
process::Sandbox sandbox_of(const ResolvedCase& resolved, const Options& options);

/// How often a case may run if something of ours, or someone outside, ends it early.
inline constexpr int attempts_allowed = 5;

/// Something of ours ended, or a process was killed from outside: the case runs again.
struct Lost {
  std::string why;
};

}  // namespace kvcts::supervisor
