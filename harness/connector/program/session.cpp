#include "connector/program/session.hpp"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "process/procfs.hpp"
#include "process/status_view.hpp"

extern char** environ;
#include "process/pointers.hpp"

namespace kvcts::connector::program {

using nlohmann::json;
using process::now_ns;
using process::ns_per_ms;

namespace {

constexpr std::int64_t poll_every_ns = 1 * ns_per_ms;
constexpr std::uint32_t frame_limit = 8u << 20;  // far longer than any honest answer
constexpr std::size_t freed_limit = 100;         // bytes of a name or word: two fit the status page
constexpr int program_socket = 3;
constexpr int closing_patience_ms = 500;  // it closed its socket: usually because it is ending

std::string ending_text(int status) {
  if (WIFSIGNALED(status)) {
    const char* text = ::sigabbrev_np(WTERMSIG(status));
    return text != nullptr ? "SIG" + std::string(text) : "signal " + std::to_string(WTERMSIG(status));
  }
  return "exit " + std::to_string(WEXITSTATUS(status));
}

/// waitpid for at most `patience_ms`; nullopt: still running.
std::optional<int> reap(pid_t pid, int patience_ms) {
  for (int i = 0; i <= patience_ms; ++i) {
    int status = 0;
    const pid_t found = ::waitpid(pid, &status, WNOHANG);
    if (found == pid) return status;
    if (found < 0 && errno != EINTR) return 0;
    ::usleep(1000);
  }
  return std::nullopt;
}

}  // namespace

ProgramSession::ProgramSession(const ProgramCommand& command) {
  auto [ours, theirs] = process::socket_pair();
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable(*entry);
    if (!command.environment.contains(variable.substr(0, variable.find('=')))) variables.push_back(variable);
  }
  for (const auto& [key, value] : command.environment) variables.push_back(key + "=" + value);
  std::vector<std::string> words = command.argv;
  std::vector<char*> argv = process::pointers_to(words), envp = process::pointers_to(variables);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), program_socket);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // its own group: it can be killed as a whole
  const int error = ::posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error == ENOENT || error == EACCES || error == ENOEXEC)
    throw NotHere(command.argv[0], "cannot start " + command.argv[0] + ": " + std::strerror(error));
  if (error != 0) throw std::system_error(error, std::generic_category(), "cannot start " + command.argv[0]);
  process::Channel::Options options;
  options.max_frame_bytes = frame_limit;
  options.accept_fds = false;
  channel_ = process::Channel(std::move(ours), options);
}

ProgramSession::~ProgramSession() {
  if (reaped_) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  reap(pid_, 5000);
}

std::int64_t ProgramSession::resident_bytes() const {
  return reaped_ ? 0 : static_cast<std::int64_t>(process::private_bytes(pid_));
}

void ProgramSession::broken(const std::string& text) {
  ended_.emplace("protocol", "the connector program breaks the protocol: " + text);
  throw *ended_;
}

void ProgramSession::gone(const std::string& text) {
  if (const auto status = reap(pid_, closing_patience_ms)) {
    reaped_ = true;
    ::kill(-pid_, SIGKILL);  // what it left in its group
    ended_.emplace(ending_text(*status), "the connector program ended");
  } else {
    ended_.emplace("protocol", text + ", and keeps running");
  }
  throw *ended_;
}

std::uint64_t ProgramSession::call(const std::string& name, json arguments) {
  if (ended_) throw *ended_;
  const std::uint64_t id = next_++;
  arguments["call"] = name;
  arguments["id"] = id;
  calls_[id].name = name;
  unanswered_.push_back(id);
  try {
    channel_.queue(arguments);
    channel_.flush();
  } catch (const process::FrameError& error) {
    gone(error.what());
  }
  return id;
}

void ProgramSession::settle(std::uint64_t id, const json& reply, bool polled) {
  const auto found = calls_.find(id);
  if (found == calls_.end() || (polled && (!found->second.accepted || found->second.answer)))
    broken("poll reports call " + std::to_string(id) + ", which is not pending");
  const auto state = reply.find("state");
  if (state == reply.end() || !state->is_string())
    broken("an answer without a state: " + process::dump(reply).substr(0, 200));
  const auto& word = state->get_ref<const std::string&>();
  found->second.accepted = true;
  if (word == "pending") {
    if (found->second.name == "poll" || found->second.name == "hello") broken(found->second.name + " cannot be pending");
    return;
  }
  if (word != "done" && word != "refused" && word != "raised" && word != "skipped")
    broken("expected the state done, pending, refused, raised or skipped, found '" + word + "'");
  if (found->second.forgotten)
    calls_.erase(found);
  else
    found->second.answer = reply;
}

void ProgramSession::answer(const json& reply) {
  if (unanswered_.empty()) broken("an unsolicited answer: " + process::dump(reply).substr(0, 200));
  const std::uint64_t expected = unanswered_.front();
  const auto id = reply.find("id");
  if (id == reply.end() || !id->is_number_unsigned() || id->get<std::uint64_t>() != expected)
    broken("expected the answer to call " + std::to_string(expected) + " (" + calls_[expected].name + "), found " +
           process::dump(reply).substr(0, 200));
  unanswered_.pop_front();
  const bool poll = calls_[expected].name == "poll";
  settle(expected, reply, false);
  if (!poll) return;
  polling_ = false;
  calls_.erase(expected);
  if (reply.value("state", "") != "done") broken("poll was answered " + reply.value("state", ""));
  const auto number = [&](const char* key) {
    const auto value = reply.find(key);
    return value != reply.end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
  };
  done_ = number("bytes_done"), total_ = number("bytes_total");
  if (const auto entries = reply.find("freed"); entries != reply.end()) free(*entries);
  const auto ended = reply.find("calls");
  if (ended == reply.end()) return;
  if (!ended->is_array()) broken("poll: calls is no list");
  for (const json& one : *ended) {
    const auto which = one.is_object() ? one.find("id") : one.end();
    if (!one.is_object() || which == one.end() || !which->is_number_unsigned()) broken("poll reports a call without an id");
    settle(which->get<std::uint64_t>(), one, true);
  }
}

void ProgramSession::free(const json& entries) {
  if (!entries.is_array()) broken("poll: freed is no list");
  for (const json& one : entries) {
    const auto text = [&](const char* key) { return one.is_object() && one.contains(key) && one[key].is_string(); };
    if (!text("request") || !text("word") || !one.contains("id") || !one["id"].is_number_unsigned())
      broken("poll: expected freed as [{id, request, word}], found " + process::dump(one).substr(0, 200));
    const auto call = calls_.find(one["id"].get<std::uint64_t>());
    if (call == calls_.end() || call->second.forgotten || call->second.name != "transfer") continue;
    call->second.freed.push_back({{"request", one["request"].get_ref<const std::string&>().substr(0, freed_limit)},
                                  {"word", one["word"].get_ref<const std::string&>().substr(0, freed_limit)}});
  }
}

std::optional<json> ProgramSession::take_freed(std::uint64_t id) {
  const auto call = calls_.find(id);
  if (call == calls_.end() || call->second.freed.empty()) return std::nullopt;
  json one = std::move(call->second.freed.front());
  call->second.freed.pop_front();
  return one;
}

void ProgramSession::pump() {
  if (ended_) throw *ended_;
  try {
    channel_.flush();
    while (auto message = channel_.pump()) answer(message->body);
  } catch (const process::FrameError& error) {
    if (error.fault == process::FrameFault::eof || error.fault == process::FrameFault::truncated)
      gone("it closed its socket");
    broken(error.what());
  }
  const bool unread = std::ranges::any_of(calls_, [](const auto& call) { return !call.second.freed.empty(); });
  if (waiting() && !unread && !polling_ && now_ns() - polled_ns_ >= poll_every_ns) {
    polled_ns_ = now_ns();
    polling_ = true;
    call("poll", json::object());
  }
}

void ProgramSession::forget() {
  for (auto& [id, call] : calls_) call.forgotten = call.name != "poll";
}

bool ProgramSession::waiting() const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [](const auto& c) { return c.second.accepted && !c.second.answer && !c.second.forgotten; });
}

bool ProgramSession::accepted(std::uint64_t id) const {
  const auto found = calls_.find(id);
  return found != calls_.end() && found->second.accepted;
}

std::optional<json> ProgramSession::take(std::uint64_t id) {
  const auto found = calls_.find(id);
  if (found == calls_.end() || !found->second.answer) return std::nullopt;
  std::optional<json> answer = std::move(found->second.answer);
  calls_.erase(found);
  return answer;
}

json ProgramSession::wait(std::uint64_t id, const std::function<bool()>& stop) {
  for (;;) {
    pump();
    if (auto answer = take(id)) return *std::move(answer);
    if (stop && stop()) throw Abandoned{};
    pollfd entry{channel_.fd(), POLLIN, 0};
    ::poll(&entry, 1, 1);
  }
}

std::optional<ProgramEnded> ProgramSession::shut_down(int patience_ms) {
  if (reaped_ || ended_) return std::nullopt;
  const std::int64_t deadline = now_ns() + patience_ms * ns_per_ms;
  std::string how;
  try {
    const std::uint64_t id = call("shutdown", json::object());
    wait(id, [&] { return now_ns() >= deadline; });
  } catch (const ProgramEnded& ended) {
    // It may close its socket before the answer is sent.
    if (reaped_) how = ended.signal;
  } catch (const Abandoned&) {
    return std::nullopt;
  }
  if (!reaped_) {
    const auto status = reap(pid_, static_cast<int>(std::max<std::int64_t>(1, (deadline - now_ns()) / ns_per_ms)));
    if (!status) return std::nullopt;
    reaped_ = true;
    ::kill(-pid_, SIGKILL);
    how = ending_text(*status);
  }
  if (how == ending_text(0)) return std::nullopt;
  return ProgramEnded(how, "the connector program did not end cleanly after shutdown");
}

}  // namespace kvcts::connector::program
