// Shared by the executors of a run: jobs and options, the event loop, the launcher, and where results go.
#pragma once

#include <exception>
#include <map>
#include <memory>
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

/// Shared by the executors of a run.
struct Run {
  Run(const Jobs& all, const Options& how, const Handlers& to, Loop& events, Link& launcher, std::string folder)
      : jobs(all),
        options(how),
        handlers(to),
        loop(events),
        link(launcher),
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

  std::vector<std::unique_ptr<Link>> hosts{};  ///< producer's and consumer's if the run has any; null: this machine
  std::array<int, 2> unreached{};              ///< failed starts in a row

  /// The launcher of the host of a side: the producer's is 0.
  Link& host_link(std::size_t side) { return side < hosts.size() && hosts[side] ? *hosts[side] : link; }
  /// Of both sides: {producer: {host, address, interface}, consumer: ...}. Null if the run has one host.
  nlohmann::json hosts_facts() const;
  /// Prepares a case for two hosts; "", or why it cannot run there.
  std::string fit_to_hosts(ResolvedCase& resolved) const;

  std::optional<std::size_t> next();
  void emit(std::size_t job, CaseResult&& result);
  void fail(std::exception_ptr why) {
    if (!error) error = why;
    stopping = true;
  }
  void log(const std::string& line) const {
    if (handlers.on_message) handlers.on_message(line);
  }
};

/// Starts what the hosts need. Throws std::runtime_error if one of them cannot be reached, or is unlike this machine.
void meet_hosts(Run& run);
/// For a worker on one of them: its own address and its peer's, and for UCX the interface of the rail.
void add_addresses(const nlohmann::json& hosts, const std::string& role, nlohmann::json& environment);

/// The sandbox of a case: what its engine's entry requests, and paths that lie in folders that a sandbox replaces.
process::Sandbox sandbox_of(const ResolvedCase& resolved, const Options& options);

/// How often a case may run if something of ours, or someone outside, ends it early.
inline constexpr int attempts_allowed = 5;

/// Something of ours ended, or a process was killed from outside: the case runs again.
struct Lost {
  std::string why;
};

}  // namespace kvcts::supervisor
