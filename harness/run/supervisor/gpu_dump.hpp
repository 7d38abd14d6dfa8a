// The GPU's own core dump of a process that stands still: which kernel hangs is in no stack of the CPU.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "process/unique_fd.hpp"

namespace kvcts::supervisor {

/// Asks the CUDA driver in a process for a dump (CUDA_COREDUMP_PIPE and _FILE of its environment, %p = its process number
/// there; CUDA-GDB manual, "GPU core dump support"). Both names are looked up below the process' own root folder, and no
/// link leads out of it.
class GpuDump {
 public:
  /// Asks, and does not wait.
  explicit GpuDump(pid_t pid);
  /// False: the environment provides for none, or no driver reads the pipe.
  bool asked() const { return asked_; }
  /// Size so far; 0 = there is none yet.
  std::int64_t bytes() const;
  /// Moves it out of what goes with the process: a path of this machine, below the folder for temporary files. Throws
  /// std::runtime_error with the reason.
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
