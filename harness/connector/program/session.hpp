// The process of one connector program, and the calls that it was given (reports/connector-protocol.md).
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
struct Ended : std::runtime_error {
  Ended(std::string how, const std::string& text) : std::runtime_error(text), signal(std::move(how)) {}
  std::string signal;
};

/// Who waits was told to stop waiting.
struct Abandoned : std::runtime_error {
  Abandoned() : std::runtime_error("abandoned: the other side has come to its end") {}
};

/// One program, from its start to its end. Calls never block: the program answers each at once, "pending" where the work
/// goes on, and is polled. No time limits here: deadlines are enforced from outside the process (a worker's, by the
/// supervisor).
class Session {
 public:
  /// Starts it. Standard output and error are this process'; the socket is its descriptor 3. Throws NotHere;
  /// std::system_error where this machine gives no process.
  explicit Session(const Command& command);
  ~Session();  ///< kills it, with its process group
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  pid_t pid() const { return pid_; }
  std::int64_t resident_bytes() const;

  /// Sends a call, returns its id. `arguments` is an object without "call" and "id". Throws Ended.
  std::uint64_t call(const std::string& name, nlohmann::json arguments);
  /// Takes in what is there, and polls where a call is pending (at most once a millisecond). Never waits. Throws Ended.
  void pump();
  /// The final answer of a call, once; nullopt while there is none.
  std::optional<nlohmann::json> take(std::uint64_t id);
  /// Whether it was answered "pending" or is over: the program has taken the call.
  bool accepted(std::uint64_t id) const;
  /// pump() until take() has something. `stop`, asked now and then, ends the waiting with Abandoned.
  nlohmann::json wait(std::uint64_t id, const std::function<bool()>& stop = {});
  /// Nobody asks for the calls under way any more: their answers are dropped.
  void forget();
  bool waiting() const;  ///< calls are pending: pump() is of use
  /// done of total bytes, as the last poll's answer told; 0 0 where the program does not tell.
  std::pair<std::uint64_t, std::uint64_t> progress() const { return {done_, total_}; }

  /// Asks it to end, waits at most `patience_ms`. How it ended, if neither with status 0 nor late (it is killed then).
  std::optional<Ended> shut_down(int patience_ms);

 private:
  struct Call {
    std::string name;
    bool accepted{false}, forgotten{false};
    std::optional<nlohmann::json> answer;
  };
  void answer(const nlohmann::json& reply);
  void settle(std::uint64_t id, const nlohmann::json& reply, bool polled);
  [[noreturn]] void broken(const std::string& text);
  [[noreturn]] void gone(const std::string& text);

  pid_t pid_{0};
  bool reaped_{false};
  process::Channel channel_;
  std::uint64_t next_{1};
  std::map<std::uint64_t, Call> calls_;
  std::deque<std::uint64_t> unanswered_;  ///< in the order in which they were sent
  bool polling_{false};
  std::int64_t polled_ns_{0};
  std::uint64_t done_{0}, total_{0};
  std::optional<Ended> ended_;  ///< how it came to its end: told again whenever it is asked
};

}  // namespace kvcts::connector::program
