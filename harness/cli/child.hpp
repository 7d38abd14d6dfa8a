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
};
/// Forks, calls the function there and brings its value back. The child is ended with SIGKILL at the deadline.
ChildAnswer ask_child(const std::function<nlohmann::json()>& question, std::chrono::milliseconds deadline);

}  // namespace kvcts::cli
