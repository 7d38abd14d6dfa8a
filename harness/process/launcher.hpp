// The launcher: parent of every process of a run. It makes sure that none outlives the run.
//
// Guarantee: when kill() of a worker reports nothing left, these are all dead: the worker, its process group and
// session, everything that descends from it through /proc's chains of parents, and everything started with its mark
// in the environment (double fork, setsid). When the supervisor's socket closes, the same is done for the whole run.
// The run has its own folder for temporary files, the TMPDIR of everything it starts; it is removed once all
// processes have ended, however they ended (scratch_folder.hpp). Linux only: the launcher is a child subreaper
// (prctl(2)), so orphans of the run become its children. Children that it did not start and that carry no other
// worker's mark are orphans, whatever they did to their environment.
//
// Channel (frames.hpp). Requests:
//   {op:"spawn", id, argv:[..], env:{NAME: value}, mark, memory_limit} + fds
//                                      fds become 1, 2, 3, ... of the child; 0 is /dev/null
//   {op:"kill", id}                    kills the process tree of that spawn, and everything with its mark
//   {op:"stop", id}                    stops that process group; as process 1 of a sandbox everything in it
//   {op:"resume", id, also:[ids]}      undoes that; what had stopped before stays so, but for those spawns
// Events (any order, any time):
//   {event:"spawned", id, pid}   {event:"spawn-failed", id, text}
//   {event:"exit", id, pid, status (as wait(2) gives it), max_rss (bytes), cpu_us}
//   {event:"killed", id, pids:[killed], left:[{pid, state, command, wchan}], ms}
//   {event:"too-many", processes}      process 1 of a sandbox has ended all in it: there were more than most_processes
//   {event:"stopped", id}              that child stopped by itself; what stop would stop is being stopped: resume it
//   {event:"still", id, left:[..], orphans:[commands]}   the reply to stop: every thread stands; left: those that do not
//                                      after 2 s; orphans: in a sandbox, what no longer belongs to a spawn
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "process/frames.hpp"
#include "process/unique_fd.hpp"

namespace kvcts::process {

inline constexpr std::size_t most_processes = 1024;  ///< in a sandbox

/// Serves one supervisor on `socket` until it closes; then ends every process of the run and returns. `run` is the
/// first part of all marks of this run. Single-threaded (PR_SET_PDEATHSIG of the children is tied to the thread that
/// forks).
void run_launcher(UniqueFd socket, const std::string& run);

/// Starts the launcher in its own session, so that Ctrl-C reaches the supervisor only. `argv` ends with the program and
/// the run. `more` become descriptors 4, 5, ...; `errors`, if any, its standard error. Throws std::system_error.
struct LauncherProcess {
  pid_t pid{0};
  UniqueFd socket;
};
LauncherProcess start_launcher(const std::vector<std::string>& argv, std::span<const int> more = {}, int errors = -1);

/// The first line of what a process has written into this memory file, its standard error; "" = nothing.
std::string first_line_of(int errors);

/// Requests.
struct SpawnRequest {
  std::uint64_t id{0};
  std::vector<std::string> argv;
  nlohmann::json environment = nlohmann::json::object();  ///< NAME: string, added to the launcher's own; null removes
  std::string mark;                                       ///< "<run>/<lane>/<ordinal>", "" = none
  std::uint64_t memory_limit{0};                          ///< bytes of private memory (RLIMIT_DATA); 0 = none
};
nlohmann::json to_json(const SpawnRequest& request);

/// "SIGSEGV", "SIGABRT", ...; "signal 63" if it has no name.
std::string signal_name(int signal);

}  // namespace kvcts::process
