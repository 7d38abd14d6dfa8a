// Runs a program to its end, a deadline or a size limit, and reports its output and how it ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace kvcts::golden {

struct ChildLimits {
  std::chrono::milliseconds deadline{std::chrono::seconds(30)};
  std::size_t output_bytes{std::size_t{512} << 20};
};

struct ChildResult {
  enum class End { exited, signalled, deadline, overflow, not_started };
  End end{End::not_started};
  int code{0};      ///< exit status, signal number, or errno of not_started
  std::string out;  ///< standard output
  std::string err;  ///< standard error, the first 64 KiB
  bool ok() const { return end == End::exited && code == 0; }
  /// "exit status 1", "crashed with SIGSEGV", "did not finish within 30 s", ...
  std::string how(const ChildLimits& limits) const;
};

/// Looks argv[0] up in PATH. `input` becomes standard input (-1: /dev/null). The child leads its own process group, which is
/// killed with it at the deadline, on too much output, and after its end. Blocks no signals, throws only std::bad_alloc.
ChildResult run_child(const std::vector<std::string>& argv, int input, const ChildLimits& limits);

}  // namespace kvcts::golden
