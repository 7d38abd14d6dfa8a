// Inspects things that may crash or hang (drivers, plug-ins) in a child process under a deadline. For programs see
// golden/child.hpp.
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
  std::string died;       ///< "SIGSEGV", "exit 7": it ended without an answer
  bool late{false};       ///< it was ended at the deadline
  bool unstarted{false};  ///< a sandbox or program that did not start: says nothing about what was asked for
};
/// Forks, calls the function there and brings its value back. The child is ended with SIGKILL at the deadline. Throws
/// std::system_error when the question cannot be asked at all (no pipe, no process): that says nothing about what was asked
/// for.
ChildAnswer ask_child(const std::function<nlohmann::json()>& query, std::chrono::milliseconds deadline);

/// The same of a program that gives its answer at descriptor `answer_place` (begin_answer, give_answer); `more` (or -1)
/// becomes `more_place`. Bubblewrap's way of telling a signal, status 128 + its number, is understood.
ChildAnswer ask_program(const std::vector<std::string>& argv, int more, int more_place, int answer_place,
                        std::chrono::milliseconds deadline);
/// In the other process, before anything else: it has started.
void begin_answer(int fd);
/// In the other process: writes what `question` returns or throws. Does not return.
[[noreturn]] void give_answer(int fd, const std::function<nlohmann::json()>& query);

}  // namespace kvcts::cli
