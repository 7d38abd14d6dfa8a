// Chooses, starts, queries and ends the workers of an executor.
#include <algorithm>
#include <limits>
#include <map>
#include <ranges>

#include "run/supervisor/case_executor.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using process::WorkerRequest;
using Kind = PhaseResult::Kind;

namespace {

constexpr std::int64_t reported_start_ms = 5'000;       // report a program that takes longer to import its modules
constexpr std::uint32_t worker_frame_limit = 8u << 20;  // no valid reply is nearly that long

/// Whether the case's engine_options are sent with register, to processes that serve other cases, too
/// (connector/program/command.hpp).
bool options_with_register(const ResolvedCase& c) {
  return is_program(c) && c.connector.options.value("options_with", "") == "register";
}

/// Collects the texts of a value.
void add_texts(const json& value, std::vector<std::string>& out) {
  if (value.is_string()) out.push_back(value);
  if (value.is_structured())
    for (const json& item : value) add_texts(item, out);
}

/// The program and what it receives with hello: connectors that differ only in what is sent with each job share
/// processes.
std::string program_of(const ResolvedCase& c) {
  if (!c.connector.options.contains("job_options")) return c.connector.name + "|" + c.connector.options.dump();
  json options = c.connector.options;
  options.erase("job_options");
  return options.dump();
}

/// What a worker is for: cases with different signatures cannot share one.
std::string signature_of(const ResolvedCase& c) {
  const EngineSpec& engine = c.engine;
  return engine.plugin + "|" + std::to_string(engine.processes) + "|" +
         (options_with_register(c) ? "" : engine.options.dump()) + "|" + engine.environment.dump() + "|" +
         json(c.grants).dump() + (is_program(c) ? "|" + program_of(c) : "");
}

/// The connector's options, plus the case's engine_options for the program unless they are sent with register.
json program_options(const ResolvedCase& c) {
  json options = c.connector.options;
  if (options_with_register(c)) return options;
  if (!options.contains("options")) options["options"] = json::object();
  options["options"].update(c.engine.options);
  return options;
}

}  // namespace

process::Sandbox sandbox_of(const ResolvedCase& c, const Options& options) {
  std::vector<std::string> named{c.engine.plugin};
  for (const json& value : {c.engine.options, c.engine.environment, c.connector.options}) add_texts(value, named);
  return {c.grants, std::move(named), options.hidden};
}

/// Selects the existing workers of this engine, and retires those that must go. May query the checker: no request may
/// be unanswered there.
Task<void> CaseExecutor::choose_workers(const ResolvedCase& resolved) {
  const std::string signature = signature_of(resolved);
  if (workers_ && workers_->signature != signature) kept_.push_back(std::move(workers_));
  if (!workers_) {
    const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const auto& w) { return w->signature == signature; });
    if (same != kept_.end()) {
      workers_ = std::move(*same);
      kept_.erase(same);
    }
  }
  if (workers_) {
    const bool gone =
        std::any_of(workers_->children.begin(), workers_->children.end(), [](const auto& c) { return c->ended(); });
    if (gone || workers_->ran >= run_.options.cases_per_worker) co_await retire(std::move(workers_));
  }
  while (kept_.size() > run_.options.kept_engines) {
    std::unique_ptr<Workers> oldest = std::move(kept_.front());
    kept_.pop_front();
    co_await retire(std::move(oldest));
  }
}

/// Starts one worker of `workers_`; the request greets it.
CaseExecutor::WorkerCall CaseExecutor::start_worker(const ResolvedCase& resolved, const std::string& role) {
  const EngineSpec& engine = resolved.engine;
  const std::int64_t ordinal = ++run_.worker_count;
  ++run_.summary.workers_started;
  Child::Spec spec;
  spec.name = "lane" + std::to_string(number_) + "/worker" + std::to_string(ordinal);
  spec.argv = {run_.programs + "/kvcts-worker", role, spec.name};
  const std::size_t side = role == "consumer" ? 1 : 0;
  spec.environment = engine.environment;
  if (!run_.hosts.empty()) add_addresses(run_.hosts_facts(), role, spec.environment);
  spec.mark = run_.link.run() + "/" + std::to_string(number_) + "/" + std::to_string(ordinal);
  spec.memory_limit = run_.options.memory_limit;
  spec.status_page = true;
  spec.max_frame_bytes = worker_frame_limit;
  workers_->children.push_back(std::make_unique<Child>(run_.loop, link(side), wake_, spec));
  json hello = {{"op", WorkerRequest::hello}, {"role", role}, {"name", spec.name}};
  if (is_program(resolved))
    hello["connector"] = {{"name", resolved.connector.name}, {"options", program_options(resolved)}};
  else
    hello["engine"] = {{"name", engine.name}, {"plugin", engine.plugin}, {"options", engine.options}};
  return {workers_->children.back().get(), std::move(hello), {}};
}

/// Starts workers if there are none, and says hello.
Task<PhaseResult> CaseExecutor::set_up_workers(Attempt& a) {
  const EngineSpec& engine = a.resolved.engine;
  PhaseResult ended;
  if (!workers_) {
    workers_ = std::make_unique<Workers>();
    workers_->id = next_workers_++;
    workers_->signature = signature_of(a.resolved);
    workers_->host_program = is_program(a.resolved);
    enter(a, Phase::registration);
    std::vector<WorkerCall> requests;
    std::vector<json> replies;
    for (std::size_t side = 0; run_.sandboxes && side < std::max<std::size_t>(1, run_.hosts.size()); ++side)
      workers_->links.push_back(new_link(a, side));
    const std::vector<std::string> roles =
        engine.processes == 1 ? std::vector<std::string>{"both"} : std::vector<std::string>{"producer", "consumer"};
    for (const std::string& role : roles) requests.push_back(start_worker(a.resolved, role));
    name_workers(a);
    const std::int64_t begun = now_ns();
    ended = co_await ask_workers(a, Phase::registration, requests, replies);
    if (!workers_) co_return ended;
    if (const std::int64_t took = (now_ns() - begun) / ns_per_ms;
        ended.kind == Kind::completed && is_program(a.resolved) && took >= reported_start_ms)
      run_.log("start-up of " + a.resolved.connector.name + ": " + std::to_string(took / 1000) + "." +
               std::to_string(took % 1000 / 100) + " s, once for all of its cases");
    for (json& reply : replies) workers_->engines.push_back(reply.value("engine", json::object()));
    if (ended.kind != Kind::completed) {  // a worker without an engine is of no use to the next case
      co_await retire(std::move(workers_));
      co_return ended;
    }
  }
  name_workers(a);
  if (is_program(a.resolved))
    a.result.facts["connector_program"] = workers_->engines[0];
  else if (workers_->engines[0].contains("version"))
    a.result.facts["engine_version"] = workers_->engines[0]["version"];
  if (!is_program(a.resolved)) note_claims(a, workers_->engines[0].value("device_facts", json::object()));
  if (!a.resolved.grants.empty() && !workers_->links.empty()) a.result.facts["granted"] = a.resolved.grants;
  if (workers_->engines[0].contains("memory")) a.result.facts["memory_provider"] = workers_->engines[0]["memory"];
  for (const auto& child : workers_->children) {
    child->out().clear();
    child->err().clear();
  }
  co_return ended;
}

void CaseExecutor::name_workers(Attempt& a) const {
  a.result.worker.clear();
  for (const auto& child : workers_->children) a.result.worker += (a.result.worker.empty() ? "" : " ") + child->name();
  a.result.worker_ordinal = workers_->ran;
  a.result.ran_before = workers_->ran_before;
}

/// Sends one request to each, then awaits all replies. Ends early only if a worker hangs or dies: then all are dead
/// afterwards. When one side of a connector program has ended, the other is notified to stop waiting for it.
Task<PhaseResult> CaseExecutor::ask_workers(Attempt& a, Phase phase, std::vector<WorkerCall>& requests,
                                            std::vector<json>& replies) {
  replies.clear();
  const std::int64_t sent = now_ns();
  const bool hello = process::request_in<WorkerRequest>(requests[0].body) == WorkerRequest::hello;
  std::int64_t limit = hello ? run_.options.start_deadline_ms : 0;
  if (hello && is_program(a.resolved))  // a program with many imports gets its time
    if (const auto start = a.resolved.connector.options.find("start_ms");
        start != a.resolved.connector.options.end() && start->is_number_integer())
      limit = std::max(limit, start->get<std::int64_t>());
  // The producer of a read first: what it says too early is acted upon before the consumer reads.
  for (WorkerCall& request : std::views::reverse(requests)) request.child->request(std::move(request.body), request.fds);
  std::vector<Child*> awaited;
  for (const WorkerCall& request : requests) awaited.push_back(request.child);
  std::map<const Child*, json> answer;
  std::map<const Child*, int> due;  // outstanding replies
  for (Child* child : awaited) due[child] = 1;
  while (!awaited.empty()) {
    Reply reply = co_await await_worker(a, awaited, phase, sent, limit);
    PhaseResult one;
    if (reply.kind == Reply::Kind::announced) {
      co_await see(a, reply.child);
      continue;
    }
    if (reply.kind == Reply::Kind::ended) {
      one = co_await crashed(a, *reply.child, reply.phase, phase);
      co_return one;
    }
    if (reply.kind == Reply::Kind::late) {
      one = co_await hung(a, *reply.child, reply.phase, sent, limit);
      co_return one;
    }
    if (!answer.contains(reply.child)) answer[reply.child] = std::move(reply.body);  // what follows is the answer to cancel
    if (--due[reply.child] == 0) std::erase(awaited, reply.child);
    if (!is_program(a.resolved) || answer[reply.child].value("ok", false)) continue;
    for (Child* other : awaited) {
      if (due[other] != 1 || answer.contains(other)) continue;
      other->request({{"op", WorkerRequest::cancel}});
      ++due[other];
    }
  }
  PhaseResult first;
  first.phase = phase;
  for (WorkerCall& request : requests) {
    json body = std::move(answer[request.child]);
    PhaseResult one = judge(a, *request.child, phase, body);
    if (one.kind != Kind::completed && first.kind == Kind::completed) first = std::move(one);
    replies.push_back(std::move(body));
  }
  if (first.kind == Kind::crashed) {  // the worker itself reported the crash
    for (const WorkerCall& request : requests) add_output(a, *request.child);
    co_await kill_workers();
  }
  co_return first;
}

/// Interprets a worker's reply.
PhaseResult CaseExecutor::judge(Attempt& a, Child& child, Phase phase, const json& reply) {
  PhaseResult ended;
  ended.role = role_of(child);
  ended.phase = phase;
  if (const auto named = reply.find("phase"); named != reply.end() && named->is_string())
    ended.phase = phase_from_name(named->get_ref<const std::string&>()).value_or(phase);
  if (const auto events = reply.find("events"); events != reply.end() && events->is_array())
    for (const json& event : *events) a.events.push_back(event);
  const auto take = [&](const char* key, Kind kind) {
    const auto found = reply.find(key);
    if (found == reply.end() || !found->is_object()) return false;
    ended.kind = kind;
    const auto text = [&](const char* field) {
      const auto value = found->find(field);
      return value != found->end() && value->is_string() ? value->get<std::string>() : std::string();
    };
    ended.type = text("type"), ended.text = text("text"), ended.at = text("at"), ended.signal = text("signal");
    if (const auto moved = found->find("moved"); moved != found->end() && moved->is_number_integer())
      ended.moved = moved->get<std::int64_t>();
    return true;
  };
  if (take("refused", Kind::refused) || take("raised", Kind::raised) || take("skipped", Kind::skipped)) return ended;
  if (take("crash", Kind::crashed)) return ended;
  if (take("memory", Kind::crashed)) {
    ended.signal = "memory limit";
    ended.text += " (limit " + std::to_string(run_.options.memory_limit >> 20) + " MiB)";
    return ended;
  }
  if (take("error", Kind::error)) {
    ended.text = "worker: " + ended.text;
    return ended;
  }
  if (reply.value("ok", false)) return ended;
  ended.kind = Kind::error;
  ended.text = "a worker's reply contains neither ok nor an error: " + process::dump(reply).substr(0, 200);
  return ended;
}

/// The first of these workers that replies, ends or is late.
Task<CaseExecutor::Reply> CaseExecutor::await_worker(Attempt& a, std::vector<Child*> awaited, Phase phase, std::int64_t sent,
                                                     std::int64_t limit) {
  std::int64_t longest = 0;  // a worker that keeps entering phases must not live forever
  for (int i = 0; i < phase_count; ++i) longest += limit_ms(a.resolved, static_cast<Phase>(i));
  if (limit > 0) longest = limit;
  const auto phase_of = [&](const Child& who) {
    const process::StatusPage& page = *who.page();
    const std::uint32_t number = page.phase.load(std::memory_order_acquire);
    const bool current = page.key.load(std::memory_order_acquire) == a.key && page.phase_since_ns.load() >= sent;
    // The page belongs to code under test. Only a transfer covers two phases.
    const bool possible = phase == Phase::transfer && number == static_cast<std::uint32_t>(Phase::complete);
    return current && possible ? Phase::complete : phase;
  };
  std::map<const Child*, std::int64_t> entered;  // the second phase, when first reported: reporting it again gains no time
  Reply reply;
  for (;;) {
    check_running();
    for (Child* child : awaited) {
      auto message = child->take();
      if (!message) continue;
      reply.body = std::move(message->body);
      reply.child = child;
      co_return reply;
    }
    for (const auto& child : workers_->children) {
      if (phase != Phase::transfer || !child->take_announcement()) continue;
      reply.kind = Reply::Kind::announced;
      reply.child = child.get();
      co_return reply;
    }
    for (const auto& other : workers_->children) {
      if (!other->ended()) continue;
      reply.kind = Reply::Kind::ended;
      reply.child = other.get();
      reply.phase = phase_of(*other);
      co_return reply;
    }
    std::int64_t next = std::numeric_limits<std::int64_t>::max();
    for (Child* child : awaited) {
      const Phase in = phase_of(*child);
      const std::int64_t since =
          in == phase
              ? sent
              : entered.try_emplace(child, std::clamp(child->page()->phase_since_ns.load(), sent, now_ns())).first->second;
      const std::int64_t deadline =
          std::min(since + (limit > 0 ? limit : limit_ms(a.resolved, in)) * ns_per_ms, sent + longest * ns_per_ms);
      next = std::min(next, deadline);
      running_->phase = in;
      if (now_ns() < deadline) continue;
      reply.kind = Reply::Kind::late;
      reply.child = child;
      reply.phase = in;
      co_return reply;
    }
    co_await wake_.wait(next);
  }
}

/// Ends workers with everything that they started, and verifies it.
Task<void> CaseExecutor::end(Workers& workers) {
  for (const auto& child : workers.children) child->kill();
  const std::int64_t patience = now_ns() + 20'000 * ns_per_ms;
  for (const auto& child : workers.children) {
    while (!child->killed() && !child->start_failure() && !child->lost() && now_ns() < patience) {
      check_running();
      co_await wake_.wait(patience);
    }
    if (!child->killed()) continue;
    for (const json& left : child->killed()->left) {
      const std::string words = "process " + std::to_string(left.value("pid", 0)) + " (" + left.value("command", "") +
                                ") of " + child->name() + " does not end: state " + left.value("state", "") + ", in " +
                                left.value("wchan", "");
      run_.summary.left_behind.push_back(words);
      run_.log(words);
    }
  }
}

/// The current case's workers can no longer be trusted.
Task<void> CaseExecutor::kill_workers() {
  if (!workers_) co_return;
  const std::unique_ptr<Workers> workers = std::move(workers_);
  watched_.no_longer_last(workers->id);
  co_await end(*workers);
}

}  // namespace kvcts::supervisor
