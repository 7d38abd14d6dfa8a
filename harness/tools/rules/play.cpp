// A rule runs between two processes; each has the plug-in to itself, and they share memory with no one else. A third
// process, this program, only listens: observations arrive through a pipe line by line, so that a crash or a call
// that never returns loses nothing.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "case/texts.hpp"
#include "engines/transport/patience.hpp"
#include "tools/rules/actor.hpp"
#include "tools/rules/rules.hpp"

namespace kvcts::rules {

using catalogue::RuleStep;
using nlohmann::json;

namespace {

constexpr std::chrono::seconds slack{15};  // for loading, connecting and ending, beyond the rule's own waits
constexpr std::size_t longest_message = 1 << 20;

/// "kvcts_engine_ucx" -> "ucx": a plug-in's name in rules.
std::string short_name(const std::string& plugin) {
  constexpr std::string_view prefix = "kvcts_engine_";
  return plugin.starts_with(prefix) ? plugin.substr(prefix.size()) : plugin;
}

/// Options and environment: the engine's entry with the rule's merge patch applied.
std::map<std::string, std::string> texts(json values, const json& patch) {
  values.merge_patch(patch);
  return texts_of(values);
}

struct Setup {
  ActorSetup actor;
  std::map<std::string, std::string> environment;
  ActorMemory here, there;
  bool one_process{false};
};

std::uint8_t* make_file(int& fd) {
  fd = memfd_create("kvcts-rule", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, memory_bytes) != 0) throw std::runtime_error("no memory file");
  void* at = mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) throw std::runtime_error("no mapping");
  return static_cast<std::uint8_t*>(at);
}
/// `exchanged`: a step of the rule does that.
ActorMemory make_memory(bool of_target, bool exchanged) {
  ActorMemory memory;
  memory.bytes = make_file(memory.fd);
  for (std::size_t i = 0; i < memory_bytes; ++i) memory.bytes[i] = initial(of_target, i);
  if (!exchanged) return memory;
  memory.other = make_file(memory.other_fd);
  for (std::size_t i = 0; i < memory_bytes; ++i) memory.other[i] = static_cast<std::uint8_t>(~initial(of_target, i));
  return memory;
}
void drop(ActorMemory& memory) {
  munmap(memory.bytes, memory_bytes);
  close(memory.fd);
  if (memory.other == nullptr) return;
  munmap(memory.other, memory_bytes);
  close(memory.other_fd);
}

// ---- the target: executes commands and makes progress meanwhile -------------------------------------------------------

/// Executes a target's commands, in a separate process or in the initiator's.
class ActorReport {
 public:
  explicit ActorReport(const Setup& setup) : actor_(true, setup.actor, setup.there) {}
  bool idle() const { return idle_; }
  bool turn() { return !idle_ && actor_.turn(); }
  json answer(const json& asked) {
    const std::string what = asked.at("what");
    if (what == "idle") {
      idle_ = asked.at("on");
      return {{"said", "ok"}};
    }
    if (what == "saw") {
      if (!saw_) actor_.collect();
      return {{"saw", saw_ ? *std::exchange(saw_, {}) : actor_.sum()}};
    }
    if (what == "collect") {
      actor_.collect();
      return {{"said", "ok"}};
    }
    if (what == "blob") {
      const std::string blob = actor_.blob(asked.at("regions"));
      return {{"blob", std::vector<std::uint8_t>(blob.begin(), blob.end())}};
    }
    if (what == "connect") {
      const auto raw = asked.at("blob").get<std::vector<std::uint8_t>>();
      const std::string message = actor_.connect(asked.at("peer"), {raw.begin(), raw.end()}, asked.at("regions"));
      return {{"said", message}, {"words", actor_.words()}};
    }
    const RuleStep& step =
        *reinterpret_cast<const RuleStep*>(asked.at("step").get<std::uintptr_t>());  // made before the fork
    const std::string message = actor_.act(step);
    if (step.action == "take" && message == "came") actor_.collect(), saw_ = actor_.sum();
    return {{"said", message}, {"words", actor_.words()}};
  }

 private:
  Actor actor_;
  std::optional<std::uint64_t> saw_;  ///< checksum of the memory at the last notification
  bool idle_{false};
};

[[noreturn]] void serve(const Setup& setup, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const auto& [key, value] : setup.environment) setenv(key.c_str(), value.c_str(), 1);
  const auto reply = [&](const json& message) {
    const std::string text = message.dump();
    if (send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0) _exit(0);
  };
  std::optional<ActorReport> reported;
  try {
    reported.emplace(setup);
  } catch (const transport::TransportError& error) {
    reply({{"failed", error.what()}, {"code", transport::name(error.code())}});
    _exit(0);
  } catch (const std::exception& error) {
    reply({{"failed", error.what()}});
    _exit(0);
  }
  reply({{"ok", true}});
  transport::Patience patience;
  std::string buffer(longest_message, '\0');
  for (;;) {
    pollfd ready{socket, POLLIN, 0};
    if (reported->turn()) patience.reset();
    if (poll(&ready, 1, reported->idle() ? -1 : patience.poll_timeout_ms()) == 0) continue;
    patience.reset();
    const auto bytes = recv(socket, buffer.data(), buffer.size(), 0);
    if (bytes <= 0) _exit(0);
    try {
      reply(reported->answer(json::from_cbor(buffer.substr(0, static_cast<std::size_t>(bytes)))));
    } catch (const std::exception& error) {
      reply({{"failed", error.what()}});
    }
  }
}

/// A side that could not be opened: that counts as an answer, too.
struct Unopened {
  std::string code, words;
};

/// The link to the target.
class Target {
 public:
  virtual ~Target() = default;
  /// Meanwhile the initiator continues its own work, as an event loop does.
  virtual json ask(const json& question, Actor& initiator) = 0;
  virtual void signal(int number) = 0;
  /// What must run in the initiator's process so that the target can proceed; empty if it is a separate process.
  virtual std::function<void()> meanwhile() { return {}; }
};

class Neighbour final : public Target {
 public:
  explicit Neighbour(const Setup& setup) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no socket pair");
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      serve(setup, ends[1]);
    }
    close(ends[1]);
    socket_ = ends[0];
    hear();
  }
  json ask(const json& question, Actor& initiator) override {
    const std::vector<std::uint8_t> text = json::to_cbor(question);
    if (send(socket_, text.data(), text.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error("the target is gone" + how());
    transport::Patience patience;
    for (pollfd ready{socket_, POLLIN, 0}; poll(&ready, 1, patience.poll_timeout_ms()) == 0;)
      if (initiator.turn()) patience.reset();
    return hear();
  }
  void signal(int number) override {
    kill(pid_, number);
    int status = 0;
    if (number == SIGKILL) waitpid(pid_, &status, 0);
    if (number == SIGSTOP) waitpid(pid_, &status, WUNTRACED);
  }

 private:
  json hear() {
    std::string buffer(longest_message, '\0');
    const auto bytes = recv(socket_, buffer.data(), buffer.size(), 0);
    if (bytes <= 0) throw std::runtime_error("the target is gone" + how());
    json message = json::parse(buffer.substr(0, static_cast<std::size_t>(bytes)));
    if (message.contains("code")) throw Unopened{message["code"], message["failed"]};
    if (message.contains("failed")) throw std::runtime_error(message["failed"].get<std::string>());
    return message;
  }
  std::string how() {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) return "";
    if (WIFSIGNALED(status)) return std::string(", ended by SIG") + sigabbrev_np(WTERMSIG(status));
    return WEXITSTATUS(status) != 0 ? ", ended with status " + std::to_string(WEXITSTATUS(status)) : "";
  }
  pid_t pid_{-1};
  int socket_{-1};
};

/// A target in the initiator's own process.
class Companion final : public Target {
 public:
  explicit Companion(const Setup& setup) : reported_(setup) {}
  json ask(const json& question, Actor&) override { return reported_.answer(question); }
  void signal(int) override { throw std::runtime_error("a target in the same process cannot be stopped or killed"); }
  std::function<void()> meanwhile() override {
    return [this] { reported_.turn(); };
  }

 private:
  ActorReport reported_;
};

/// Both sides register 1 MiB and the initiator connects. Built before any fork: the target reads steps at their
/// addresses.
const std::vector<RuleStep>& prelude() {
  static const std::vector<RuleStep> steps = [] {
    RuleStep local, remote, connect;
    local.action = remote.action = "register", connect.action = "connect";
    local.region = "local", remote.region = "remote", remote.side = "target";
    return std::vector<RuleStep>{local, remote, connect};
  }();
  return steps;
}

// ---- the initiator: plays the steps -----------------------------------------------------------------------------------

class RuleRun {
 public:
  RuleRun(const RuleEntry& rule, const Setup& setup, int out) : rule_(rule), setup_(setup), out_(out) {}

  void run() {
    at("opening");
    std::unique_ptr<Target> target;
    if (!setup_.one_process) target = std::make_unique<Neighbour>(setup_);  // before anything is loaded here
    for (const auto& [key, value] : setup_.environment) setenv(key.c_str(), value.c_str(), 1);
    if (setup_.one_process) target = std::make_unique<Companion>(setup_);
    target_ = target.get();
    Actor actor(false, setup_.actor, setup_.here);
    actor.meanwhile = target->meanwhile();
    actor_ = &actor;
    tell({{"version", actor.session().plugin().version()}});
    if (rule_.prelude == "pair")
      for (const RuleStep& step : prelude()) must(step, "the prelude");
    for (std::size_t i = 0; i < rule_.steps.size(); ++i) {
      const RuleStep& step = rule_.steps[i];
      const std::string where = "step " + std::to_string(i + 1) + " (" + step.action + ")";
      at(where);
      if (step.as.empty()) {
        must(step, where);
      } else {
        const auto begin = std::chrono::steady_clock::now();
        const std::string answered = act(step);
        const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
        tell({{"as", step.as}, {"seen", answered}, {"words", words_}, {"ms", ms}});
      }
    }
    tell({{"end", true}});
    _exit(0);  // active requests belong to the engine; release nothing
  }

  void tell(const json& line) const {
    const std::string text = line.dump() + "\n";
    [[maybe_unused]] const auto written = write(out_, text.data(), text.size());
  }

 private:
  void at(const std::string& where) const { tell({{"at", where}}); }

  /// A step without a name must succeed, or the following ones mean nothing.
  void must(const RuleStep& step, const std::string& where) {
    const std::string answered = act(step);
    if (answered != "ok" && answered != "done" && answered != "came")
      throw std::runtime_error(where + " answered " + answered + ": " + words_);
  }

  std::string act(const RuleStep& step) {
    if (step.action == "connect") return connect(step);
    if (step.action == "target") return change(step.state);
    if (step.action == "check" || step.action == "others" || step.action == "watch") return look(step);
    if (step.side == "initiator") return own(actor_->act(step));
    if (step.action == "register") places_[step.region] = static_cast<std::size_t>(step.at);
    if (step.action == "exchange" && setup_.actor.memory.empty())
      exchange(setup_.there);  // as seen here; first, because in one process the target's is the same
    return theirs({{"what", "step"}, {"step", reinterpret_cast<std::uintptr_t>(&step)}});
  }

  /// Compares the bytes of both sides.
  std::string look(const RuleStep& step) {
    const auto collect = [&] {
      if (setup_.actor.memory.empty()) return;
      actor_->collect();
      if (state_ == "killed") return;  // its memory is gone with it
      if (state_ == "stopped") target_->signal(SIGCONT);
      target_->ask({{"what", "collect"}}, *actor_);
      if (state_ == "stopped") target_->signal(SIGSTOP);
    };
    const bool by_target = step.side == "target";
    const std::uint64_t saw = by_target ? target_->ask({{"what", "saw"}}, *actor_).at("saw").get<std::uint64_t>() : 0;
    collect();
    if (by_target && saw != sum(setup_.there)) return "later";
    if (step.action == "check") return actor_->check(step.request, setup_.there, places_);
    if (step.action == "others") return actor_->others(setup_.there, places_);
    const auto all = [&] {
      return std::string(reinterpret_cast<const char*>(setup_.here.bytes), memory_bytes) +
             std::string(reinterpret_cast<const char*>(setup_.there.bytes), memory_bytes);
    };
    const std::string before = all();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.within_ms);
    for (; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(1))) actor_->turn();
    collect();
    return all() == before ? "quiet" : "changed";
  }

  std::string connect(const RuleStep& step) {
    const bool forth = step.side == "initiator";
    std::string blob;
    if (step.blob == "kept") {
      blob = kept_;
    } else if (forth && step.blob != "own") {
      const auto raw =
          target_->ask({{"what", "blob"}, {"regions", step.regions}}, *actor_).at("blob").get<std::vector<std::uint8_t>>();
      blob.assign(raw.begin(), raw.end());
    } else {
      blob = actor_->blob(step.regions);
    }
    if (step.blob == "whole" || step.blob == "kept") kept_ = blob;
    if (step.blob == "cut")
      blob.resize(blob.size() - std::min<std::size_t>(blob.size(), static_cast<std::size_t>(step.amount)));
    if (step.blob == "empty") blob.clear();
    if (step.blob == "garbage") {
      for (std::size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<char>(initial(true, i * 7 + 3));
    }
    if (forth) return own(actor_->connect(step.peer, blob, step.regions));
    return theirs({{"what", "connect"},
                   {"peer", step.peer},
                   {"regions", step.regions},
                   {"blob", std::vector<std::uint8_t>(blob.begin(), blob.end())}});
  }

  std::string change(const std::string& state) {
    state_ = state;
    if (state == "stopped") return target_->signal(SIGSTOP), "ok";
    if (state == "running") return target_->signal(SIGCONT), "ok";
    if (state == "killed") return target_->signal(SIGKILL), "ok";
    return theirs({{"what", "idle"}, {"on", state == "idle"}});
  }

  std::string own(std::string message) {
    words_ = actor_->words();
    return message;
  }
  std::string theirs(const json& question) {
    const json answer = target_->ask(question, *actor_);
    words_ = answer.value("words", "");
    return answer.at("said");
  }

  const RuleEntry& rule_;
  Setup setup_;
  int out_;
  Target* target_{nullptr};
  Actor* actor_{nullptr};
  std::map<std::string, std::size_t> places_;
  std::string state_;         ///< the target's last state
  std::string kept_, words_;  ///< the last complete blob; the last error's text
};

[[noreturn]] void initiate(const RuleEntry& rule, const Setup& setup, int out) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  RuleRun run_rule(rule, setup, out);
  try {
    run_rule.run();
  } catch (const Unopened& answer) {
    run_rule.tell({{"failed", answer.words}, {"code", answer.code}});
  } catch (const transport::TransportError& error) {
    run_rule.tell({{"failed", error.what()}, {"code", transport::name(error.code())}});
  } catch (const std::exception& error) {
    run_rule.tell({{"failed", error.what()}});
  }
  _exit(0);
}

// ---- the listener -----------------------------------------------------------------------------------------------------

/// Lines of the pipe until its end or the deadline.
std::vector<json> listen(int fd, std::chrono::milliseconds deadline, bool& in_time) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  std::string text;
  char buffer[4096];
  in_time = false;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) break;
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    const auto bytes = read(fd, buffer, sizeof buffer);
    if (bytes <= 0) {
      in_time = true;
      break;
    }
    text.append(buffer, static_cast<std::size_t>(bytes));
  }
  std::vector<json> lines;
  for (std::size_t from = 0, to; (to = text.find('\n', from)) != std::string::npos; from = to + 1)
    if (json line = json::parse(text.substr(from, to - from), nullptr, false); !line.is_discarded())
      lines.push_back(std::move(line));
  return lines;
}

std::vector<json> run_rule_in_child(const RuleEntry& rule, Setup& setup, std::chrono::milliseconds deadline, bool& in_time,
                                    int& status) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::string("no pipe: ") + std::strerror(errno));
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
  if (pid == 0) {
    close(ends[0]);
    initiate(rule, setup, ends[1]);
  }
  close(ends[1]);
  std::vector<json> lines = listen(ends[0], deadline, in_time);
  close(ends[0]);
  kill(-pid, SIGKILL);
  waitpid(pid, &status, 0);
  return lines;
}

}  // namespace

RuleObservation run_rule(const RuleEntry& rule, const EngineEntry& engine, const std::string& memory) {
  const json any = rule.options.value("any", json::object());
  const bool exchanged =
      std::any_of(rule.steps.begin(), rule.steps.end(), [](const RuleStep& step) { return step.action == "exchange"; });
  Setup setup{{engine.plugin, memory, texts(engine.options, rule.options.value(short_name(engine.plugin), any))},
              texts(engine.environment, rule.environment),
              make_memory(false, exchanged),
              make_memory(true, exchanged),
              engine.processes == 1};
  if (auto provided = setup.actor.options.extract("memory_provider"); !provided.empty() && memory.empty())
    setup.actor.memory = provided.mapped();
  prelude();
  std::chrono::milliseconds deadline = slack;
  for (const RuleStep& step : rule.steps) deadline += std::chrono::milliseconds(step.within_ms);
  RuleObservation seen;
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  bool in_time = false;
  const std::vector<json> lines = run_rule_in_child(rule, setup, deadline, in_time, status);
  seen.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  drop(setup.here);
  drop(setup.there);

  std::string where = "the beginning", trouble;
  std::vector<std::pair<std::string, std::string>> answers;
  bool ended = false;
  for (const json& line : lines) {
    if (line.contains("at")) where = line["at"];
    if (line.contains("version")) seen.version = line["version"];
    if (line.contains("words") && !line["words"].get<std::string>().empty()) seen.words = line["words"];
    if (line.contains("as")) {
      answers.emplace_back(line["as"], line["seen"]);
      seen.took_ms[line["as"]] = line["ms"];
    }
    if (line.contains("failed")) trouble = line.value("code", "not played"), seen.words = line["failed"];
    ended = ended || line.contains("end");
  }
  if (trouble.empty() && !ended)
    trouble = !in_time ? "does not return"
              : WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL
                  ? std::string("crash SIG") + sigabbrev_np(WTERMSIG(status))
                  : "exits";
  const auto named =
      std::count_if(rule.steps.begin(), rule.steps.end(), [](const RuleStep& step) { return !step.as.empty(); });
  for (const auto& [as, answer] : answers)
    seen.text += (seen.text.empty() ? "" : "; ") + (named > 1 ? as + ": " : "") + answer;
  if (!trouble.empty()) seen.text += (seen.text.empty() ? "" : "; ") + trouble + " in " + where;
  return seen;
}

}  // namespace kvcts::rules
