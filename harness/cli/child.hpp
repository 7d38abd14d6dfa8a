// Looks at things that may crash or hang (drivers, plug-ins) from a child process under a deadline. For programs there is
// golden/child.hpp.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace kvcts::cli {

struct ChildAnswer {
  bool ok{false};
  nlohmann::json value;   ///< what the function returned
  std::string error;      ///< why not: its exception, the signal, or the deadline
  std::string died;       ///< "SIGSEGV", "exit 7": it ended without an answer
  bool late{false};       ///< it was ended at the deadline
};
/// Forks, calls the function there and brings its value back. The child is ended with SIGKILL at the deadline. Throws std::system_error when
/// the question cannot be asked at all (no pipe, no process): that says nothing about what was asked for.
ChildAnswer ask_child(const std::function<nlohmann::json()>& question, std::chrono::milliseconds deadline);

}  // namespace kvcts::cli
