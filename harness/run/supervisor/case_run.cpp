// One execution of one case: its phases in order. The memory is compared before and after each call that ends
// something.
#include <algorithm>

#include "case/evidence.hpp"
#include "run/supervisor/case_executor.hpp"
#include "run/supervisor/evidence.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using process::CheckerRequest;
using process::WorkerRequest;
using Kind = PhaseResult::Kind;

namespace {
constexpr std::int64_t patience_ms = 20;

/// What ends a case's requests, peers and registrations, in order.
std::vector<const char*> ending_calls(const ResolvedCase& c) {
  return is_program(c) ? std::vector<const char*>{"end"} : std::vector<const char*>{"release", "remove_peer", "deregister"};
}
/// In display form.
const char* call_text(std::string_view call) {
  if (call == "release") return "release()";
  if (call == "remove_peer") return "remove_peer()";
  return call == "deregister" ? "deregister_region()" : "the program's release";
}
}  // namespace

Child& CaseExecutor::initiator(const ResolvedCase& c) const {
  return c.op == Direction::read ? *workers_->children.back() : *workers_->children.front();
}

/// The memory files that a worker receives: its own side's.
nlohmann::json CaseExecutor::files_for(const Attempt& a, const Child& child, std::vector<int>& fds) const {
  const bool pair = workers_->children.size() == 2;
  const bool is_producer = &child == workers_->children.front().get();
  json files = json::array();
  for (std::size_t i = 0; i < a.files.size(); ++i) {
    if (pair && (a.files[i].value("side", "") == "producer") != is_producer) continue;
    files.push_back(a.files[i]);
    if (i < a.fds.size()) fds.push_back(a.fds[i].get());
  }
  return files;
}

/// Sends the same request to every worker.
Task<PhaseResult> CaseExecutor::ask_all(Attempt& a, Phase phase, WorkerRequest op) {
  std::vector<WorkerCall> requests;
  std::vector<json> replies;
  for (const auto& child : workers_->children) requests.push_back({child.get(), {{"op", op}, {"key", a.key}}, {}});
  co_return co_await ask_workers(a, phase, requests, replies);
}

/// Gives the workers the memory, and pairs of them each other's metadata.
Task<PhaseResult> CaseExecutor::register_case(Attempt& a) {
  enter(a, Phase::registration);
  std::vector<WorkerCall> requests;
  std::vector<json> replies;
  const json view = run_.options.view ? run_.options.view(a.resolved) : worker_view(a.resolved);
  for (const auto& child : workers_->children) {
    WorkerCall request{child.get(), {{"op", WorkerRequest::prepare}, {"key", a.key}, {"case", view}}, {}};
    request.body["files"] = files_for(a, *child, request.fds);
    if (is_program(a.resolved))
      request.body["ports"] = run_.ports.take(a.resolved.connector.options.value("ports", std::int64_t{0}));
    if (!workers_->to_forget.empty()) request.body["forget"] = workers_->to_forget;
    requests.push_back(std::move(request));
  }
  workers_->to_forget.clear();
  a.registered = true;
  PhaseResult ended = co_await ask_workers(a, Phase::registration, requests, replies);
  if (ended.kind == Kind::completed && workers_->children.size() == 2) {
    requests.clear();
    for (std::size_t i = 0; i < 2; ++i) {
      json peer = {{"role", i == 0 ? "consumer" : "producer"}, {"metadata", replies[1 - i].value("metadata", "")}};
      requests.push_back(
          {workers_->children[i].get(), {{"op", WorkerRequest::connect}, {"key", a.key}, {"peer", std::move(peer)}}, {}});
    }
    ended = co_await ask_workers(a, Phase::registration, requests, replies);
  }
  if (ended.kind == Kind::completed) spend(a, Phase::registration, now_ns() - a.since_ns);
  co_return ended;
}

Task<PhaseResult> CaseExecutor::plan(Attempt& a) {
  enter(a, Phase::plan);
  std::vector<WorkerCall> requests;
  std::vector<json> replies;
  requests.push_back({&initiator(a.resolved), {{"op", WorkerRequest::plan}, {"key", a.key}}, {}});
  PhaseResult ended = co_await ask_workers(a, Phase::plan, requests, replies);
  if (ended.kind != Kind::completed) co_return ended;
  a.planned = replies[0].value("bytes", std::int64_t{0});
  a.result.copies = replies[0].value("copies", std::int64_t{0});
  a.plan = std::move(replies[0]);
  spend(a, Phase::plan, now_ns() - a.since_ns);
  co_return ended;
}

/// Fills new content for another pass.
Task<PhaseResult> CaseExecutor::fill(Attempt& a) {
  enter(a, Phase::generate);
  json fill = {{"op", CheckerRequest::fill}, {"key", a.key}, {"pass", a.pass}};
  checker_.request(std::move(fill));
  json filled = co_await checker_reply(&a.resolved);
  PhaseResult ended;
  if (filled.contains("error")) {
    ended.kind = Kind::error;
    ended.phase = Phase::generate;
    ended.text = filled["error"].value("text", "");
  } else {
    spend(a, Phase::generate, now_ns() - a.since_ns);
  }
  co_return ended;
}

/// What the engine says of its device when it is opened, and of its path after a transfer.
void CaseExecutor::note_claims(Attempt& a, const json& reported) const {
  if (reported.empty()) return;
  a.result.facts["engine_claims"] = reported;
  a.result.evidence = evidence_of(reported, a.resolved.arch, [&] {
    return run_.options.devices ? run_.options.devices(a.resolved.engine.plugin) : std::vector<std::string>{};
  });
}

Task<PhaseResult> CaseExecutor::transfer(Attempt& a) {
  const ResolvedCase& c = a.resolved;
  enter(a, Phase::transfer);
  a.transferred = false;
  a.seen = 0, a.seeing_ns = 0, a.consumer_done = false;
  PhaseResult ended;
  if (has_provider(c)) ended = co_await ask_all(a, Phase::transfer, WorkerRequest::upload);
  if (ended.kind != Kind::completed) co_return ended;
  Child& first = initiator(c);
  std::vector<WorkerCall> requests;
  std::vector<json> replies;
  requests.push_back({&first, {{"op", WorkerRequest::transfer}, {"key", a.key}, {"pass", a.pass}}, {}});
  for (const auto& child : workers_->children)
    if (is_program(c) && child.get() != &first)
      requests.push_back({child.get(), {{"op", WorkerRequest::transfer}, {"key", a.key}, {"pass", a.pass}}, {}});
  for (const auto& child : workers_->children) child->await_announcement();
  ended = co_await ask_workers(a, Phase::transfer, requests, replies);
  if (ended.kind != Kind::completed) co_return ended;
  if (a.seen < static_cast<int>(replies.size())) co_await see(a, nullptr);  // a reply announces it, too
  for (const auto& child : workers_->children) child->await_announcement();
  a.moved = replies[0].value("moved", std::int64_t{is_program(c) ? -1 : 0});
  note_claims(a, replies[0].value("path", json::object()));
  const std::int64_t total = now_ns() - a.since_ns - a.seeing_ns;
  const json times = replies[0].value("ns", json::object());
  const std::int64_t completing = std::clamp<std::int64_t>(times.value("complete", std::int64_t{0}), 0, total);
  spend(a, Phase::transfer, total - completing);
  spend(a, Phase::complete, completing);
  if (has_provider(c)) ended = co_await ask_all(a, Phase::complete, WorkerRequest::download);
  a.transferred = ended.kind == Kind::completed;
  co_return ended;
}

/// The consumer's worker gathers what arrived, like an attention kernel.
Task<PhaseResult> CaseExecutor::read_back(Attempt& a) {
  enter(a, Phase::read_back);
  std::vector<WorkerCall> requests;
  std::vector<json> replies;
  requests.push_back({workers_->children.back().get(), {{"op", WorkerRequest::read}, {"key", a.key}, {"pass", a.pass}}, {}});
  PhaseResult ended = co_await ask_workers(a, Phase::read_back, requests, replies);
  if (ended.kind == Kind::completed) spend(a, Phase::read_back, now_ns() - a.since_ns);
  co_return ended;
}

Task<PhaseResult> CaseExecutor::execute(Attempt& a) {
  const ResolvedCase& c = a.resolved;
  PhaseResult ended = co_await register_case(a);
  if (ended.kind == Kind::completed && !is_program(c)) ended = co_await plan(a);  // a program does not reveal its plan
  if (ended.kind != Kind::completed) co_return ended;
  for (a.pass = 0; a.pass < std::max(1, c.passes); ++a.pass) {
    if (a.pass > 0) ended = co_await fill(a);
    if (ended.kind == Kind::completed) ended = co_await transfer(a);
    if (ended.kind == Kind::completed && !c.reader.name.empty()) ended = co_await read_back(a);
    if (ended.kind != Kind::completed) co_return ended;
    co_await compare(a, ended);
    if (a.compared->outcome ==
        Outcome::fail) {  // does the rest arrive by itself? Then the next call is not what delivers it
      co_await sleep_ms(patience_ms);
      co_await peek_memory(a, "");
    }
    if (a.pass + 1 >= c.passes || a.compared->outcome != Outcome::pass) break;
    if (!is_program(c)) ended = co_await end_call(a, "release");  // the next pass posts anew
    if (ended.kind != Kind::completed || a.late) break;
  }
  if (ended.kind == Kind::completed && a.registered) ended = co_await finish(a);
  co_return ended;
}

/// Makes all remaining calls that end something, one by one.
Task<PhaseResult> CaseExecutor::finish(Attempt& a) {
  a.registered = false;
  PhaseResult ended;
  const std::vector<const char*> calls = ending_calls(a.resolved);
  for (const char* call : calls) {
    PhaseResult one = co_await end_call(a, call);
    if (one.kind != Kind::completed && ended.kind == Kind::completed) ended = std::move(one);
    if (!workers_) break;
  }
  if (workers_) {
    ++workers_->ran;
    workers_->ran_before = a.result.id;
  }
  co_return ended;
}

/// Makes one call that ends something, then compares the memory: once completion was reported, this call must change
/// nothing.
Task<PhaseResult> CaseExecutor::end_call(Attempt& a, const char* call) {
  std::vector<WorkerCall> requests;
  std::vector<json> replies;
  const bool posted_by_one = std::string_view(call) == "release";
  for (const auto& child : workers_->children)
    if (!posted_by_one || child.get() == &initiator(a.resolved))
      requests.push_back({child.get(), {{"op", WorkerRequest::end}, {"key", a.key}, {"call", call}}, {}});
  PhaseResult ended = co_await ask_workers(a, Phase::complete, requests, replies);
  if (ended.kind != Kind::completed) ended.call = call_text(call);
  std::int64_t peak = 0;
  for (const json& reply : replies) peak += reply.value("peak_bytes", std::int64_t{0});
  a.result.peak_bytes = std::max(a.result.peak_bytes, peak);
  co_await peek_memory(a, call_text(call));
  co_return ended;
}

json CaseExecutor::compare_request(Attempt& a, const PhaseResult& ended) {
  const bool trace = run_.options.trace_diagnosis;
  if (is_ours(a.resolved))
    return {{"op", CheckerRequest::compare}, {"case", std::move(a.serialize.document)}, {"trace", trace}};
  json events = a.events;
  if (json event = event_of(ended); !event.is_null()) events.push_back(std::move(event));
  const bool broken = ended.kind == Kind::hung || ended.kind == Kind::crashed;
  return {{"op", CheckerRequest::compare},
          {"key", a.key},
          {"pass", std::min(a.pass, std::max(1, a.resolved.passes) - 1)},
          {"events", std::move(events)},
          {"planned", a.planned},
          {"moved", a.moved},
          {"transferred", a.transferred && !broken},
          {"search", !run_.diagnosed.contains(a.result.id)},
          {"trace", trace},
          // A provider's memory dies with the worker: what had arrived there is unknown.
          {"state", !has_provider(a.resolved) && broken}};
}

/// What the checker finds in the memory. Where our machine performs the steps, that is the whole case.
Task<void> CaseExecutor::compare(Attempt& a, const PhaseResult& ended) {
  enter(a, Phase::compare);
  checker_.request(compare_request(a, ended));
  const json reply = co_await checker_reply(&a.resolved);
  const std::int64_t total = now_ns() - a.since_ns;
  if (const auto error = reply.find("error"); error != reply.end()) {
    a.compared.emplace();
    a.compared->message = error->value("text", "the checker failed");
    if (is_ours(a.resolved)) a.compared->phase = Phase::resolve;
  } else {
    // What the other host's memory held is unknown: no case passes by half of its bytes.
    if (reply.contains("absent") && ended.kind == Kind::completed) throw Lost{reply["absent"]};
    if (reply.contains("absent")) a.result.facts["not_compared"] = reply["absent"];
    a.compared = report_from_json(reply.at("report"));
    if (a.compared->wrong_bytes > 0) run_.diagnosed.insert(a.result.id);
  }
  if (has_provider(a.resolved)) a.result.facts["completion_snapshot"] = "none: the destination lies in memory of a provider";
  const std::int64_t diagnosing = std::clamp<std::int64_t>(a.compared->diagnose_ns, 0, total);
  spend(a, Phase::compare, total - diagnosing);
  if (diagnosing > 0) spend(a, Phase::diagnose, diagnosing);
}

}  // namespace kvcts::supervisor
