// Hosts one connector program for one side: what a worker does for a case, in the program's calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "connector/program/messages.hpp"
#include "connector/program/session.hpp"
#include "process/status.hpp"

namespace kvcts::connector::program {

/// A call that did not end well, as the worker tells the supervisor (process/protocol.hpp): {"refused": ...}, {"raised":
/// ...},
/// {"crash": ...}, {"skipped": ...}, or {"ok": true, "abandoned": true} when it was told to stop waiting.
struct Stopped {
  nlohmann::json reply;
};

class Host {
 public:
  /// `stop`: asked while a call is awaited; true = the supervisor wants something else: the wait ends as if abandoned.
  Host(std::string connector, nlohmann::json options, Side side, std::string name, std::function<bool()> stop);
  ~Host();

  /// Starts the program where there is none. The reply to hello. Throws Stopped.
  const nlohmann::json& start();
  /// register. Returns the metadata for the other side. Throws Stopped.
  nlohmann::json open(std::uint64_t key, const ResolvedCase& view, const std::vector<Memory>& memory,
                      const nlohmann::json& ports);
  void handshake(std::uint64_t key, const nlohmann::json& peer);
  /// transfer, until it is over; the part of it that comes after the program took the call is phase complete. Returns what
  /// the program said. Throws Stopped.
  nlohmann::json transfer(std::uint64_t key, const ResolvedCase& view, int pass, process::Progress& progress);
  /// release; or the end of a program that cannot be used again.
  void close(std::uint64_t key);
  /// shutdown, and the end of the process. Throws Stopped where it dies of that, or ends with another status than 0.
  void shut_down();

  /// A round of progress for the peer's sake. Never throws: how a program died is told when it is asked next.
  void pump();
  bool open_case() const { return open_; }
  std::int64_t resident_bytes() const { return session_ ? session_->resident_bytes() : 0; }

 private:
  /// What `wait` brings for the call's id, judged; a program that ended, or a wait given up, is a Stopped.
  template <class Wait>
  nlohmann::json answer_of(const std::string& call, nlohmann::json arguments, const Wait& wait);
  nlohmann::json ask(const std::string& call, nlohmann::json arguments);
  nlohmann::json judged(const std::string& call, nlohmann::json answer);
  [[noreturn]] void stop_with(const char* kind, const std::string& call, const nlohmann::json& answer);

  std::string connector_;
  nlohmann::json options_;
  Side side_;
  std::string name_;
  std::function<bool()> stop_;
  std::unique_ptr<Session> session_;
  nlohmann::json hello_;
  bool open_{false}, spent_{false};
};

}  // namespace kvcts::connector::program
