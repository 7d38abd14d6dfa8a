// The GPU's core dump of a hanging process: no CPU stack shows which kernel hangs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "process/unique_fd.hpp"

namespace kvcts::supervisor {

/// Requests a dump from the CUDA driver in a process (CUDA_COREDUMP_PIPE and _FILE of its environment, %p = its pid
/// there; CUDA-GDB manual, "GPU core dump support"). Both names are resolved below the process's root folder; no link
/// leads out of it. Dumps are the user's choice: in driver 580.159 one switch enables them on request and on exceptions, and
/// then a kernel that fails is dumped and its process aborted, in place of the error that a case may expect.
class GpuDump {
 public:
  /// Requests the dump without waiting.
  explicit GpuDump(pid_t pid);
  /// False: the environment does not enable dumps, or no driver reads the pipe.
  bool asked() const { return asked_; }
  /// How to have one, for a case that hung without.
  static std::string advice(const std::string& id);
  /// Size so far; 0 = no dump yet.
  std::int64_t bytes() const;
  /// Moves it away from what vanishes with the process: returns a path on this machine, below the folder for
  /// temporary files. Throws std::runtime_error with the reason.
  std::string keep() const;

 private:
  process::UniqueFd open(const std::string& path, int flags) const;
  void remove(const std::filesystem::path& path) const;

  process::UniqueFd root_, cwd_;
  pid_t pid_;
  std::string file_;
  bool asked_{false};
};

}  // namespace kvcts::supervisor
