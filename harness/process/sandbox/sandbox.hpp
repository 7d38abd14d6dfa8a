// The sandbox for code under test: bubblewrap around the processes, plus a system call filter.
//
// Inside, processes have their own pids, IPC objects and mounts. The machine's files are read-only; /tmp, /dev/shm, /run
// and the user's cache are empty and private, and vanish with the sandbox: of their content only needed_paths() are there,
// read-only. The only devices are null, zero, full, random and tty; there is no /sys and no capability. System calls that
// reach into another process, change mounts or namespaces, or load code into the kernel fail. An engine's entry names what
// it needs beyond that (grants()). The network is a loopback of its own, and of the environment it has what is known to
// matter to it.
#pragma once

#include <string>
#include <vector>

#include "process/grants.hpp"
#include "process/launcher.hpp"
#include "process/unique_fd.hpp"

namespace kvcts::process {

struct Sandbox {
  std::vector<std::string> granted;  ///< names from grants()
  std::vector<std::string> named;    ///< words of the case or the command line; paths among them are needed inside
  std::vector<std::string> hidden;   ///< folders and files that appear empty inside: what the suite writes, keys
};

/// The command that runs `argv` in the sandbox. What is needed there (process/installation.hpp) is visible also where it
/// lies in a folder that the sandbox replaces. `filter`: number of the descriptor on which it receives filter_of().
/// `first`: run as process 1, which no signal from inside can end and which must reap; otherwise bubblewrap's own
/// process 1 reaps.
std::vector<std::string> sandboxed(const Sandbox& sandbox, int filter, const std::vector<std::string>& argv,
                                   bool first = false);

/// The system call filter in bubblewrap's format. Throws std::runtime_error if it cannot be built.
UniqueFd filter_of(const Sandbox& sandbox);

/// Starts a launcher as process 1 of the sandbox. `argv`, `errors`: of start_launcher(). Throws as that and filter_of().
LauncherProcess start_launcher_in(const Sandbox& sandbox, const std::vector<std::string>& argv, int errors);

/// Why this machine has no sandbox: bubblewrap is missing, the kernel forbids it, or KVCTS_SANDBOX=off. "" = it has
/// one. Tried once per process, with a program that looks around in it (probe.hpp).
const std::string& why_no_sandbox();
/// "bubblewrap 0.8.0", or "none: <why>".
std::string isolation_text();

}  // namespace kvcts::process
