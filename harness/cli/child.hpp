// Looks at things that may crash or hang (drivers, plug-ins, other programs) from a child process under a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcts::cli {

struct ChildAnswer {
  bool ok{false};
  nlohmann::json value;   ///< what the function returned
  std::string error;      ///< why not: its exception, the signal, or the deadline
};
/// Forks, calls the function there and brings its value back. The child is ended with SIGKILL at the deadline.
ChildAnswer ask_child(const std::function<nlohmann::json()>& question, std::chrono::milliseconds deadline);

struct ProgramAnswer {
  int status{-1};         ///< exit status; -1: not started, killed, or past the deadline
  std::string output;     ///< standard output and standard error
};
/// Runs a program found in PATH with no standard input. Output beyond 64 KiB is dropped.
ProgramAnswer ask_program(const std::vector<std::string>& argv, std::chrono::milliseconds deadline);

}  // namespace kvcts::cli
