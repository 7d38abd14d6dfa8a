// The process of one connector program, and its calls (reports/guide/add-a-connector.md).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "connector/program/command.hpp"
#include "process/frames.hpp"

namespace kvcts::connector::program {

inline constexpr int protocol_version = 1;

/// The program died, or broke the protocol. `signal`: "SIGSEGV", "exit 3", "protocol".
struct ProgramEnded : std::runtime_error {
  ProgramEnded(std::string how, const std::string& text) : std::runtime_error(text), signal(std::move(how)) {}
  std::string signal;
};

/// The caller was asked to stop waiting.
struct Abandoned : std::runtime_error {
  Abandoned() : std::runtime_error("abandoned: the other side has ended") {}
};

/// One program, from start to end. Calls never block: the program answers each immediately, "pending" while work continues,
/// and is then polled. No time limits here: the supervisor of the worker enforces deadlines from outside.
class ProgramSession {
 public:
  /// Starts it. It inherits this process' standard output and error; the socket is its descriptor 3. Throws NotHere, or
  /// std::system_error when the machine cannot start a process.
  explicit ProgramSession(const ProgramCommand& command);
  ~ProgramSession();  ///< kills it, with its process group
  ProgramSession(const ProgramSession&) = delete;
  ProgramSession& operator=(const ProgramSession&) = delete;

  pid_t pid() const { return pid_; }
  std::int64_t resident_bytes() const;

  /// Sends a call and returns its id. `arguments` is an object without "call" and "id". Throws ProgramEnded.
  std::uint64_t call(const std::string& name, nlohmann::json arguments);
  /// Reads available answers, and polls if a call is pending (at most once per millisecond). Never waits. Throws
  /// ProgramEnded.
  void pump();
  /// The final answer of a call, once; nullopt until it arrives.
  std::optional<nlohmann::json> take(std::uint64_t id);
  /// Whether it was answered "pending" or is over: the program has accepted the call.
  bool accepted(std::uint64_t id) const;
  /// pump() until take() returns something. `stop`, polled now and then, ends the wait with Abandoned.
  nlohmann::json wait(std::uint64_t id, const std::function<bool()>& stop = {});
  /// Abandons the calls in progress: drops their answers.
  void forget();
  bool waiting() const;  ///< calls are pending: pump() is useful
  /// done of total bytes, from the last poll's answer; 0 0 if the program does not report them.
  std::pair<std::uint64_t, std::uint64_t> progress() const { return {done_, total_}; }

  /// What a pending transfer's producer no longer needs, in the order in which the program said so: {request, word}. No
  /// further poll before all of it is taken.
  std::optional<nlohmann::json> take_freed(std::uint64_t id);

  /// Asks it to end, waits at most `patience_ms`, then kills it. Returns how it ended, unless that was status 0 or too late.
  std::optional<ProgramEnded> shut_down(int patience_ms);

 private:
  struct Call {
    std::string name;
    bool accepted{false}, forgotten{false};
    std::optional<nlohmann::json> answer;
    std::deque<nlohmann::json> freed;
  };
  void free(const nlohmann::json& entries);
  void answer(const nlohmann::json& reply);
  void settle(std::uint64_t id, const nlohmann::json& reply, bool polled);
  [[noreturn]] void broken(const std::string& text);
  [[noreturn]] void gone(const std::string& text);

  pid_t pid_{0};
  bool reaped_{false};
  process::Channel channel_;
  std::uint64_t next_{1};
  std::map<std::uint64_t, Call> calls_;
  std::deque<std::uint64_t> unanswered_;  ///< in sending order
  bool polling_{false};
  std::int64_t polled_ns_{0};
  std::uint64_t done_{0}, total_{0};
  std::optional<ProgramEnded> ended_;  ///< how it ended: repeated on every later call
};

}  // namespace kvcts::connector::program
