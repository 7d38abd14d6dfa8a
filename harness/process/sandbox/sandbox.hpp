// The sandbox of code under test: bubblewrap around the processes, and a filter of system calls.
//
// Inside: process ids, IPC objects and mounts of its own; the machine's files read-only; /tmp, /dev/shm, /run and the user's
// cache empty, its own and gone with it; no other devices than null, zero, full, random and tty; no /sys; no capability; no
// call that reaches into another process, changes mounts or namespaces, or loads code into the kernel. What an engine needs
// beside that, its entry names (grants()). The network is that of the machine.
#pragma once

#include <string>
#include <vector>

#include "process/grants.hpp"
#include "process/unique_fd.hpp"

namespace kvcts::process {

struct Sandbox {
  std::vector<std::string> granted;  ///< names out of grants()
  std::vector<std::string> shown;    ///< absolute paths to be seen, read-only, although they lie in what is replaced
  std::vector<std::string> hidden;   ///< folders that are empty inside: what the suite writes
};

/// Paths of this process' environment, working folder, own folder and `also` that lie in a folder that a sandbox replaces:
/// plug-ins and programs in /tmp.
std::vector<std::string> shown_paths(const std::vector<std::string>& also);

/// The command that runs `argv` in the sandbox. `filter`: number of the descriptor at which it will find filter_of().
/// `first`: as process 1, which no signal from inside ends, and which has to reap; else behind a process of bubblewrap's
/// that does.
std::vector<std::string> sandboxed(const Sandbox& sandbox, int filter, const std::vector<std::string>& argv,
                                   bool first = false);

/// The system call filter, as bubblewrap reads it. Throws std::runtime_error where it cannot be made.
UniqueFd filter_of(const Sandbox& sandbox);

/// Why this machine has no sandbox: bubblewrap is missing, the kernel forbids it, or KVCTS_SANDBOX=off. "" = it has. Tried
/// once a process, with the program that does nothing.
const std::string& why_no_sandbox();
/// "bubblewrap 0.8.0", or "none: <why>".
std::string isolation_words();

}  // namespace kvcts::process
