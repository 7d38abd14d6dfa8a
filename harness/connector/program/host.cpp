#include "connector/program/host.hpp"

#include <system_error>
#include <utility>

namespace kvcts::connector::program {

using nlohmann::json;

namespace {

constexpr int shutdown_patience_ms = 1500;  // the supervisor gives a worker three seconds to end

std::string text_of(const json& answer, const char* key) {
  const auto found = answer.find(key);
  return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// "file:line in call" as the program reports it.
std::string place_of(const json& answer, const std::string& call) {
  std::string place = text_of(answer, "file");
  if (const auto line = answer.find("line"); !place.empty() && line != answer.end() && line->is_number_integer())
    place += ":" + std::to_string(line->get<std::int64_t>());
  return place.empty() ? call : place + " in " + call;
}

/// The side that ended is the one that counts.
const json abandoned = {{"ok", true}, {"abandoned", true}};

json crash(const ProgramEnded& ended) { return {{"crash", {{"signal", ended.signal}, {"text", ended.what()}}}}; }

}  // namespace

ProgramHost::ProgramHost(std::string connector, json options, Side side, std::string name, std::function<bool()> stop)
    : connector_(std::move(connector)),
      options_(std::move(options)),
      side_(side),
      name_(std::move(name)),
      stop_(std::move(stop)) {}

ProgramHost::~ProgramHost() {
  if (session_ && !spent_) session_->shut_down(shutdown_patience_ms);
}

void ProgramHost::stop_with(const char* kind, const std::string& call, const json& answer) {
  json what = {{"text", text_of(answer, "text")}, {"at", place_of(answer, call)}};
  if (const std::string type = text_of(answer, "type"); !type.empty()) what["type"] = type;
  if (const auto moved = answer.find("moved"); moved != answer.end() && moved->is_number_unsigned()) what["moved"] = *moved;
  if (what["text"].get_ref<const std::string&>().empty()) what["text"] = "(the program gave no reason)";
  throw Stopped{{{kind, std::move(what)}}};
}

json ProgramHost::judged(const std::string& call, json answer) {
  const std::string state = text_of(answer, "state");
  // An exception leaves the program in an unknown state: the next case gets a fresh process.
  if (answer.value("spent", state == "raised")) spent_ = true;
  if (state == "raised" && !answer.contains("type")) answer["type"] = "exception";
  if (state == "skipped" && call != "hello")
    throw Stopped{crash(ProgramEnded("protocol", "the connector program breaks the protocol: only hello can be skipped"))};
  if (state != "done") stop_with(state.c_str(), call, answer);
  return answer;
}

template <class Wait>
json ProgramHost::answer_of(const std::string& call, json arguments, const Wait& wait) {
  try {
    return judged(call, wait(session_->call(call, std::move(arguments))));
  } catch (const ProgramEnded& ended) {
    spent_ = true;
    throw Stopped{crash(ended)};
  } catch (const Abandoned&) {
    // A program that can drop a job midway stays usable for the next one.
    if (hello_.value("/capabilities/abandon"_json_pointer, false))
      session_->forget();
    else
      spent_ = true;
    throw Stopped{abandoned};
  }
}

json ProgramHost::ask(const std::string& call, json arguments) {
  return answer_of(call, std::move(arguments), [&](std::uint64_t id) { return session_->wait(id, stop_); });
}

const json& ProgramHost::start() {
  if (session_) return hello_;
  try {
    const ProgramCommand command = command_of(connector_, options_of_side(options_, side_));
    session_ = std::make_unique<ProgramSession>(command);
    spent_ = false;
    hello_ = json::object();  // the program is unknown again
    hello_ =
        ask("hello", {{"protocol", protocol_version}, {"role", name(side_)}, {"name", name_}, {"options", command.options}});
  } catch (const NotHere& lack) {
    throw Stopped{{{"skipped", {{"text", lack.what()}}}}};
  } catch (const std::system_error& error) {
    throw Stopped{{{"error", {{"text", error.what()}}}}};  // no process, memory or descriptor: not the program's fault
  }
  if (text_of(hello_, "name").empty() || text_of(hello_, "version").empty()) {
    spent_ = true;
    throw Stopped{crash(
        ProgramEnded("protocol", "the connector program breaks the protocol: hello was answered without name and version"))};
  }
  return hello_;
}

json ProgramHost::open(std::uint64_t key, const ResolvedCase& view, const std::vector<MemoryMessage>& memory,
                       const json& ports) {
  if (spent_) session_.reset();
  start();
  open_ = true;
  json arguments = register_arguments(view, side_, memory);
  arguments["job"] = key;
  arguments["ports"] = ports;
  json answer = ask("register", std::move(arguments));
  return answer.contains("metadata") ? answer["metadata"] : json();
}

void ProgramHost::handshake(std::uint64_t key, const json& peer) { ask("handshake", {{"job", key}, {"peer", peer}}); }

json ProgramHost::transfer(std::uint64_t key, const ResolvedCase& view, int pass, process::Progress& progress,
                           const std::function<void(const std::string&)>& freed) {
  json arguments = transfer_arguments(view, side_);
  arguments["job"] = key;
  arguments["transfer"] = pass;
  bool taken = false;
  json answer = answer_of("transfer", std::move(arguments), [&](std::uint64_t id) {
    return session_->wait(id, [&] {
      if (!taken && session_->accepted(id)) {
        taken = true;
        progress.enter(Phase::complete);
      }
      const auto [done, total] = session_->progress();
      if (total != 0) progress.set(done, total);
      while (const auto one = session_->take_freed(id)) {
        if (side_ == Side::consumer)
          throw ProgramEnded("protocol", "the connector program breaks the protocol: only a producer's blocks can be freed");
        freed(one->dump(-1, ' ', false, json::error_handler_t::replace));
      }
      return stop_ && stop_();
    });
  });
  // Blocks that the connector reports as not loaded: an error for the engine, equivalent to a refusal.
  if (const auto errors = answer.find("load_errors"); errors != answer.end() && errors->is_array() && !errors->empty())
    stop_with("refused", "load errors",
              {{"text", "load errors of blocks " + errors->dump() + (text_of(answer, "text").empty() ? "" : ", ") +
                            text_of(answer, "text")},
               {"moved", answer.value("moved", json())}});
  return answer;
}

void ProgramHost::close(std::uint64_t key) {
  if (!std::exchange(open_, false)) return;
  if (spent_) {
    session_.reset();
    return;
  }
  ask("release", {{"job", key}});
}

void ProgramHost::shut_down() {
  const std::unique_ptr<ProgramSession> session = std::move(session_);
  if (!session || spent_) return;
  if (const auto ended = session->shut_down(shutdown_patience_ms)) throw Stopped{crash(*ended)};
}

void ProgramHost::pump() {
  if (!session_ || spent_) return;
  try {
    session_->pump();
  } catch (const ProgramEnded&) {
    // Reported at the next call: the socket stays at its end. Between two cases no one is at fault: start another one.
    if (!open_) session_.reset();
  }
}

}  // namespace kvcts::connector::program
