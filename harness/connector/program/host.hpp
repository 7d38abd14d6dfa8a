// Hosts one connector program for one side: does a worker's job for a case through the program's calls.
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

/// A call that failed, as the worker reports it to the supervisor (process/protocol.hpp): {"refused": ...}, {"raised": ...},
/// {"crash": ...}, {"skipped": ...}, or {"ok": true, "abandoned": true} when the supervisor ended the wait.
struct Stopped {
  nlohmann::json reply;
};

class ProgramHost {
 public:
  /// `stop`: polled during a call; true = the supervisor needs something else: the wait ends as abandoned.
  ProgramHost(std::string connector, nlohmann::json options, Side side, std::string name, std::function<bool()> stop);
  ~ProgramHost();

  /// Starts the program unless it runs. The reply to hello. Throws Stopped.
  const nlohmann::json& start();
  /// register. Returns the metadata for the other side. Throws Stopped.
  nlohmann::json open(std::uint64_t key, const ResolvedCase& view, const std::vector<MemoryMessage>& memory,
                      const nlohmann::json& ports);
  void handshake(std::uint64_t key, const nlohmann::json& peer);
  /// transfer, until it is over; the part after the program accepted the call is phase complete. Returns the program's
  /// answer. `freed` is called with each {request, word} by which a producer says before that that blocks of a request are
  /// free; the program does not run on before it returns. Throws Stopped.
  nlohmann::json transfer(
      std::uint64_t key, const ResolvedCase& view, int pass, process::Progress& progress,
      const std::function<void(const std::string&)>& freed = [](const std::string&) {});
  /// release; or ends a program that cannot be reused.
  void close(std::uint64_t key);
  /// shutdown, and the end of the process. Throws Stopped if it crashes or exits with a status other than 0.
  void shut_down();

  /// Makes progress for the peer. Never throws: the next call reports how a program died.
  void pump();
  bool open_case() const { return open_; }
  std::int64_t resident_bytes() const { return session_ ? session_->resident_bytes() : 0; }

 private:
  /// What `wait` returns for the call's id, judged; a program that ended, or an abandoned wait, throws Stopped.
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
  std::unique_ptr<ProgramSession> session_;
  nlohmann::json hello_;
  bool open_{false}, spent_{false};
};

}  // namespace kvcts::connector::program
