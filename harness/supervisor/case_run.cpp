// One execution of one case: its phases in their order.
#include <algorithm>

#include "case/evidence.hpp"
#include "supervisor/evidence.hpp"
#include "supervisor/lane.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using Kind = Ended::Kind;

namespace {
/// Regions are memory of a provider that only the workers reach: bytes go in before a pass and come out behind it.
bool has_provider(const ResolvedCase& c) { return c.engine.options.contains("memory_provider"); }
}  // namespace

/// Asks every worker for the same.
Task<Ended> Lane::ask_all(Attempt& a, Phase phase, const char* op) {
  std::vector<Request> requests;
  std::vector<json> replies;
  for (const auto& child : workers_->children) requests.push_back({child.get(), {{"op", op}, {"key", a.key}}, {}});
  co_return co_await ask_workers(a, phase, requests, replies);
}

Task<Ended> Lane::execute(Attempt& a) {
  const ResolvedCase& c = a.resolved;
  const bool pair = workers_->children.size() == 2;
  Child& producer = *workers_->children.front();
  Child& consumer = *workers_->children.back();
  Child& initiator = c.op == "read" ? consumer : producer;
  std::vector<Request> requests;
  std::vector<json> replies;
  Ended ended;

  enter(a, Phase::registration);
  const json view = worker_view(c);
  for (const auto& child : workers_->children) {
    Request request{child.get(), {{"op", "prepare"}, {"key", a.key}, {"case", view}}, {}};
    json files = json::array();
    for (std::size_t i = 0; i < a.files.size(); ++i) {
      const bool of_producer = a.files[i].value("side", "") == "producer";
      if (pair && of_producer != (child.get() == &producer)) continue;
      files.push_back(a.files[i]);
      if (i < a.fds.size()) request.fds.push_back(a.fds[i].get());
    }
    request.body["files"] = std::move(files);
    if (is_program(c)) request.body["ports"] = run_.ports.take(c.connector.options.value("ports", std::int64_t{0}));
    if (!workers_->to_forget.empty()) request.body["forget"] = workers_->to_forget;
    requests.push_back(std::move(request));
  }
  workers_->to_forget.clear();
  a.registered = true;
  ended = co_await ask_workers(a, Phase::registration, requests, replies);
  if (ended.kind != Kind::completed) co_return ended;
  if (pair) {
    requests.clear();
    for (std::size_t i = 0; i < 2; ++i) {
      json peer = {{"role", i == 0 ? "consumer" : "producer"}, {"metadata", replies[1 - i].value("metadata", "")}};
      requests.push_back({workers_->children[i].get(), {{"op", "connect"}, {"key", a.key}, {"peer", std::move(peer)}}, {}});
    }
    ended = co_await ask_workers(a, Phase::registration, requests, replies);
    if (ended.kind != Kind::completed) co_return ended;
  }
  spend(a, Phase::registration, now_ns() - a.since_ns);

  if (!is_program(c)) {  // a program tells nobody how it goes about it
    enter(a, Phase::plan);
    requests.clear();
    requests.push_back({&initiator, {{"op", "plan"}, {"key", a.key}}, {}});
    ended = co_await ask_workers(a, Phase::plan, requests, replies);
    if (ended.kind != Kind::completed) co_return ended;
    a.planned = replies[0].value("bytes", std::int64_t{0});
    a.result.copies = replies[0].value("copies", std::int64_t{0});
    a.plan = std::move(replies[0]);
    spend(a, Phase::plan, now_ns() - a.since_ns);
  }

  for (a.pass = 0; a.pass < std::max(1, c.passes); ++a.pass) {
    const bool last = a.pass + 1 >= c.passes;
    if (a.pass > 0) {
      enter(a, Phase::generate);
      json fill = {{"op", "fill"}, {"key", a.key}, {"pass", a.pass}};
      checker_->request(std::move(fill));
      json filled = co_await checker_reply(&c);
      if (filled.contains("error")) {
        ended.kind = Kind::error;
        ended.phase = Phase::generate;
        ended.text = filled["error"].value("text", "");
        co_return ended;
      }
      spend(a, Phase::generate, now_ns() - a.since_ns);
    }

    enter(a, Phase::transfer);
    a.transferred = false;
    if (has_provider(c)) {
      ended = co_await ask_all(a, Phase::transfer, "upload");
      if (ended.kind != Kind::completed) co_return ended;
    }
    requests.clear();
    requests.push_back({&initiator, {{"op", "transfer"}, {"key", a.key}, {"pass", a.pass}}, {}});
    for (const auto& child : workers_->children)
      if (is_program(c) && child.get() != &initiator) requests.push_back({child.get(), {{"op", "transfer"}, {"key", a.key}, {"pass", a.pass}}, {}});
    ended = co_await ask_workers(a, Phase::transfer, requests, replies);
    if (ended.kind != Kind::completed) co_return ended;
    a.moved = replies[0].value("moved", std::int64_t{is_program(c) ? -1 : 0});
    if (const auto path = replies[0].find("path"); path != replies[0].end() && !path->empty()) {
      a.result.facts["engine_claims"] = *path;
      a.result.evidence = evidence_of(*path, c.arch, [&] { return run_.options.devices ? run_.options.devices(c.engine.plugin) : std::vector<std::string>{}; });
    }
    {
      const std::int64_t total = now_ns() - a.since_ns;
      const json times = replies[0].value("ns", json::object());
      const std::int64_t completing = std::clamp<std::int64_t>(times.value("complete", std::int64_t{0}), 0, total);
      spend(a, Phase::transfer, total - completing);
      spend(a, Phase::complete, completing);
    }
    if (has_provider(c)) {
      ended = co_await ask_all(a, Phase::complete, "download");
      if (ended.kind != Kind::completed) co_return ended;
    }
    a.transferred = true;

    if (!c.reader.name.empty()) {
      enter(a, Phase::read_back);
      requests.clear();
      requests.push_back({&consumer, {{"op", "read"}, {"key", a.key}, {"pass", a.pass}}, {}});
      ended = co_await ask_workers(a, Phase::read_back, requests, replies);
      if (ended.kind != Kind::completed) co_return ended;
      spend(a, Phase::read_back, now_ns() - a.since_ns);
    }
    if (last) {
      ended = co_await finish(a);
      if (ended.kind != Kind::completed) co_return ended;
    }
    co_await compare(a, ended);
    if (a.compared.value("outcome", "") != "PASS") break;
  }
  if (a.registered) ended = co_await finish(a);
  co_return ended;
}

Task<Ended> Lane::finish(Attempt& a) {
  a.registered = false;
  std::vector<Request> requests;
  std::vector<json> replies;
  for (const auto& child : workers_->children) requests.push_back({child.get(), {{"op", "finish"}, {"key", a.key}}, {}});
  Ended ended = co_await ask_workers(a, Phase::complete, requests, replies);
  std::int64_t peak = 0;
  for (const json& reply : replies) peak += reply.value("peak_bytes", std::int64_t{0});
  a.result.peak_bytes = std::max(a.result.peak_bytes, peak);
  if (workers_) {
    ++workers_->ran;
    workers_->ran_before = a.result.id;
  }
  co_return ended;
}

Task<void> Lane::compare(Attempt& a, const Ended& ended) {
  enter(a, Phase::compare);
  json events = a.events;
  if (json event = event_of(ended); !event.is_null()) events.push_back(std::move(event));
  json request = {{"op", "compare"},
                  {"key", a.key},
                  {"pass", std::min(a.pass, std::max(1, a.resolved.passes) - 1)},
                  {"events", std::move(events)},
                  {"planned", a.planned},
                  {"moved", a.moved},
                  {"transferred", a.transferred && ended.kind != Kind::hung && ended.kind != Kind::crashed},
                  // A provider's memory dies with the worker: nobody knows what had arrived there.
                  {"state", !has_provider(a.resolved) && (ended.kind == Kind::hung || ended.kind == Kind::crashed)}};
  checker_->request(std::move(request));
  a.compared = co_await checker_reply(&a.resolved);
  const std::int64_t total = now_ns() - a.since_ns;
  if (const auto error = a.compared.find("error"); error != a.compared.end()) {
    a.compared = json{{"outcome", "ERROR"}, {"message", error->value("text", "the checker failed")}};
  }
  const json times = a.compared.value("ns", json::object());
  const std::int64_t diagnosing = std::clamp<std::int64_t>(times.value("diagnose", std::int64_t{0}), 0, total);
  spend(a, Phase::compare, total - diagnosing);
  spend(a, Phase::diagnose, diagnosing);
}

}  // namespace kvcts::supervisor
