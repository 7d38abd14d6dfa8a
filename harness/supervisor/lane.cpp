#include "supervisor/lane.hpp"

#include <sys/wait.h>

#include <algorithm>

#include "supervisor/evidence.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using Kind = Ended::Kind;

namespace {

constexpr int attempts_allowed = 5;
constexpr int losses_allowed = 10;
constexpr std::int64_t ms = 1'000'000;
constexpr std::size_t recheck_batch = 16;
constexpr std::uint32_t worker_frame_limit = 8u << 20;  // no honest reply is nearly that long

std::string signature_of(const EngineSpec& engine) {
  return engine.plugin + "|" + std::to_string(engine.processes) + "|" + engine.options.dump() + "|" + engine.environment.dump();
}

}  // namespace

std::optional<std::size_t> Run::next() {
  if (stopping || next_job >= jobs.count || (handlers.stop && handlers.stop())) return std::nullopt;
  return next_job++;
}

void Run::emit(std::size_t job, CaseResult&& result) {
  if (finished[job]) return;
  finished[job] = true;
  ++(result.outcome == Outcome::not_run ? summary.not_run : summary.finished);
  try {
    handlers.on_result(std::move(result));
  } catch (...) {
    fail(std::current_exception());
  }
}

Lane::Lane(Run& run, int number) : run_(run), number_(number), wake_(run.loop) {}
Lane::~Lane() = default;

std::optional<Running> Lane::running() const { return running_; }

void Lane::check_running() const {
  if (run_.stopping) throw Interrupted{};
  if (run_.link.lost()) throw Lost{"the warden ended"};
}

std::int64_t Lane::limit_ms(const ResolvedCase& resolved, Phase phase) const {
  const auto index = static_cast<std::size_t>(phase);
  if (resolved.deadline_ms[index] > 0) return resolved.deadline_ms[index];
  if (run_.options.deadline_ms[index] > 0) return run_.options.deadline_ms[index];
  return 10'000;
}

void Lane::enter(Attempt& a, Phase phase) {
  a.since_ns = now_ns();
  running_->phase = phase;
  running_->since_ns = a.since_ns;
}

void Lane::spend(Attempt& a, Phase phase, std::int64_t ns) {
  for (PhaseTime& time : a.result.phases) {
    if (time.phase != phase) continue;
    time.ns += ns;
    return;
  }
  a.result.phases.push_back({phase, ns});
}

std::string Lane::role_of(const Child& child) const {
  if (!workers_ || workers_->children.size() == 1) return "both";
  return workers_->children.front().get() == &child ? "producer" : "consumer";
}

Task<void> Lane::sleep_ms(std::int64_t duration) {
  const std::int64_t until = now_ns() + duration * ms;
  while (now_ns() < until) {
    if (run_.stopping) throw Interrupted{};
    co_await wake_.wait(until);
  }
}

// ---- the lane's life ------------------------------------------------------------------------------------------------

Task<void> Lane::work() {
  try {
    for (;;) {
      std::optional<std::string> lost;
      try {
        if (!again_.empty()) {
          const Again again = again_.front();
          again_.pop_front();
          co_await run_job(again);
        } else if (const auto job = run_.next()) {
          co_await run_job(Again{*job});
        } else if (!watched_.empty()) {
          co_await settle(true);
        } else {
          break;
        }
        co_await settle(false);
      } catch (const Lost& loss) {  // while cases were watched
        lost = loss.why;
      }
      if (lost) lose_checker(*lost);
    }
    running_.reset();
    co_await retire(std::move(workers_));
    while (!kept_.empty()) {
      std::unique_ptr<Workers> oldest = std::move(kept_.front());
      kept_.pop_front();
      co_await retire(std::move(oldest));
    }
  } catch (const Interrupted&) {
    // The warden ends all processes when the run closes its socket.
  } catch (const Lost&) {
  } catch (...) {  // a handler of the caller
    run_.fail(std::current_exception());
  }
  running_.reset();
}

Task<void> Lane::run_job(Again job) {
  Attempt a;
  a.job = job.job;
  a.number = job.number;
  a.lost = job.lost;
  std::optional<std::string> lost;
  bool own_fault = false;
  try {
    co_await attempt_case(a);
  } catch (const Lost& loss) {
    lost = loss.why;
  } catch (const std::exception& error) {  // ours: no descriptors left, a reply that is not what the protocol says
    lost = std::string("supervisor: ") + error.what();
    own_fault = true;
  }
  if (!lost) co_return;

  a.fds.clear();
  if (run_.link.lost()) {
    workers_.reset();
    kept_.clear();
    checker_.reset();
    run_.link.restart();
    lose_checker(*lost);
  } else {
    co_await kill_workers();
    if (checker_ && (checker_->ended() || own_fault)) lose_checker(*lost);
    else if (checker_) co_await drain_checker(a.key);
  }
  if (a.number < attempts_allowed) {
    again_.push_back({a.job, a.number + 1, a.lost});
    co_return;
  }
  a.result.outcome = Outcome::error;
  if (a.result.id.empty()) a.result.id = run_.jobs.id(a.job);
  a.result.message = *lost + "; given up after " + std::to_string(a.number) + " attempts";
  run_.emit(a.job, std::move(a.result));
}

Task<void> Lane::attempt_case(Attempt& a) {
  const std::int64_t begin = now_ns();
  CaseResult& result = a.result;
  result.id = run_.jobs.id(a.job);
  running_ = Running{number_, result.id, Phase::resolve, begin};
  std::optional<std::string> broken;
  try {
    a.resolved = run_.jobs.resolve(a.job);
    result.case_digest = digest(a.resolved);
    result.execution = digest(a.resolved, false);
    result.seed = a.resolved.seed;
    result.facts = a.resolved.facts;
    result.evidence = Evidence::modelled;
  } catch (const std::exception& error) {
    broken = error.what();
  }
  spend(a, Phase::resolve, now_ns() - begin);
  if (broken) {
    Ended ended;
    ended.kind = Kind::error;
    ended.phase = Phase::resolve;
    ended.text = *broken;
    decide(ended, nullptr, result);
    result.wall_ns = now_ns() - begin;
    run_.emit(a.job, std::move(result));
    co_return;
  }

  a.key = run_.next_key++;
  need_checker();
  co_await choose_workers(a.resolved.engine);
  enter(a, Phase::allocate);
  a.last_pid = run_.pids.last();
  // Both requests at once: the checker fills while the workers are looked after.
  json open = {{"op", "open"}, {"key", a.key}, {"case", to_json(a.resolved)}};
  json fill = {{"op", "fill"}, {"key", a.key}, {"pass", 0}};
  checker_->request(std::move(open));
  checker_->request(std::move(fill));
  Ended ended = co_await set_up_workers(a);
  enter(a, Phase::allocate);
  json opened = co_await checker_reply(&a.resolved, &a.fds);
  spend(a, Phase::allocate, now_ns() - a.since_ns);
  enter(a, Phase::generate);
  json filled = co_await checker_reply(&a.resolved);
  spend(a, Phase::generate, now_ns() - a.since_ns);
  if (opened.contains("error") || filled.contains("error")) {
    const json& error = opened.contains("error") ? opened : filled;
    ended.kind = Kind::error;
    ended.phase = opened.contains("error") ? Phase::allocate : Phase::generate;
    ended.text = error["error"].value("text", "");
  } else {
    a.opened = true;
    a.files = std::move(opened["files"]);
    a.memory_bytes = opened.value("total_bytes", std::int64_t{0});
  }

  if (ended.kind == Kind::completed) ended = co_await execute(a);
  a.fds.clear();
  if (ended.kind != Kind::completed && a.registered && workers_) {
    Ended cleaned = co_await finish(a);
    if (cleaned.kind == Kind::hung || cleaned.kind == Kind::crashed) ended = std::move(cleaned);
  }
  if (workers_) co_await look_for_strays(a);
  if (ended.kind != Kind::completed && ended.kind != Kind::error && ended.kind != Kind::skipped && a.opened) {
    co_await compare(a, ended);
  }
  decide(ended, a.compared, result);
  if (!a.stray.empty()) {
    if (result.outcome == Outcome::pass) {
      result.outcome = Outcome::fail;
      result.phase = Phase::complete;
      result.diagnosis = {"crash", true, a.stray, "Look at what the code under test starts, and who waits for it.", {}};
      result.message = a.stray;
    } else {
      result.message += (result.message.empty() ? "" : "; ") + a.stray;
    }
  }
  if (a.planned > 0) result.planned_bytes = a.planned;
  if (a.moved > 0) result.moved_bytes = a.moved;
  result.peak_bytes += a.memory_bytes;
  result.wall_ns = now_ns() - begin;

  if (!a.opened) {
    run_.emit(a.job, std::move(result));
  } else if (workers_) {  // somebody could still write
    if (result.outcome == Outcome::fail)
      for (const auto& child : workers_->children) add_output(a, *child);
    watched_bytes_ += a.memory_bytes;
    watched_.push_back({a.job, a.key, std::move(result), a.memory_bytes, now_ns() + a.resolved.settle_ms * ms, a.number, a.lost,
                        workers_->id});
  } else {
    json close = {{"op", "close"}, {"key", a.key}};
    checker_->request(std::move(close));
    co_await checker_reply(nullptr);
    run_.emit(a.job, std::move(result));
  }
}

// ---- the phases -----------------------------------------------------------------------------------------------------

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

  enter(a, Phase::plan);
  requests.clear();
  requests.push_back({&initiator, {{"op", "plan"}, {"key", a.key}}, {}});
  ended = co_await ask_workers(a, Phase::plan, requests, replies);
  if (ended.kind != Kind::completed) co_return ended;
  a.planned = replies[0].value("bytes", std::int64_t{0});
  a.result.copies = replies[0].value("copies", std::int64_t{0});
  if (run_.options.keep_plans) add_evidence(a.result, "plan", process::dump(replies[0]));
  spend(a, Phase::plan, now_ns() - a.since_ns);

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
    requests.clear();
    requests.push_back({&initiator, {{"op", "transfer"}, {"key", a.key}, {"pass", a.pass}}, {}});
    ended = co_await ask_workers(a, Phase::transfer, requests, replies);
    if (ended.kind != Kind::completed) co_return ended;
    a.moved = replies[0].value("moved", std::int64_t{0});
    if (const auto path = replies[0].find("path"); path != replies[0].end() && !path->empty()) a.result.facts["engine_path"] = *path;
    {
      const std::int64_t total = now_ns() - a.since_ns;
      const json times = replies[0].value("ns", json::object());
      const std::int64_t completing = std::clamp<std::int64_t>(times.value("complete", std::int64_t{0}), 0, total);
      spend(a, Phase::transfer, total - completing);
      spend(a, Phase::complete, completing);
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
                  {"may_differ", ended.kind != Kind::completed},
                  {"state", ended.kind == Kind::hung || ended.kind == Kind::crashed}};
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

// ---- workers --------------------------------------------------------------------------------------------------------

/// Chooses the workers that this engine has already, and retires those that have to go. May ask the checker: nothing else may be
/// unanswered there.
Task<void> Lane::choose_workers(const EngineSpec& engine) {
  const std::string signature = signature_of(engine);
  if (workers_ && workers_->signature != signature) kept_.push_back(std::move(workers_));
  if (!workers_) {
    const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const auto& w) { return w->signature == signature; });
    if (same != kept_.end()) {
      workers_ = std::move(*same);
      kept_.erase(same);
    }
  }
  if (workers_) {
    const bool gone = std::any_of(workers_->children.begin(), workers_->children.end(), [](const auto& c) { return c->ended(); });
    if (gone || workers_->ran >= run_.options.cases_per_worker) co_await retire(std::move(workers_));
  }
  while (kept_.size() > run_.options.kept_engines) {
    std::unique_ptr<Workers> oldest = std::move(kept_.front());
    kept_.pop_front();
    co_await retire(std::move(oldest));
  }
}

/// Starts workers where there are none, and says hello.
Task<Ended> Lane::set_up_workers(Attempt& a) {
  const EngineSpec& engine = a.resolved.engine;
  Ended ended;
  if (!workers_) {
    workers_ = std::make_unique<Workers>();
    workers_->id = next_workers_++;
    workers_->signature = signature_of(engine);
    enter(a, Phase::registration);
    std::vector<Request> requests;
    std::vector<json> replies;
    const std::vector<std::string> roles =
        engine.processes == 1 ? std::vector<std::string>{"both"} : std::vector<std::string>{"producer", "consumer"};
    for (const std::string& role : roles) {
      const std::int64_t ordinal = ++run_.worker_count;
      ++run_.summary.workers_started;
      Child::Spec spec;
      spec.name = "lane" + std::to_string(number_) + "/worker" + std::to_string(ordinal);
      spec.argv = {run_.programs + "/kvcts-worker", role, spec.name};
      spec.environment = engine.environment;
      spec.mark = run_.link.run() + "/" + std::to_string(number_) + "/" + std::to_string(ordinal);
      spec.memory_limit = run_.options.memory_limit;
      spec.status_page = true;
      spec.max_frame_bytes = worker_frame_limit;
      workers_->children.push_back(std::make_unique<Child>(run_.loop, run_.link, wake_, spec));
      json plugin = {{"name", engine.name}, {"plugin", engine.plugin}, {"options", engine.options}};
      requests.push_back({workers_->children.back().get(),
                          {{"op", "hello"}, {"role", role}, {"name", spec.name}, {"engine", std::move(plugin)}},
                          {}});
    }
    name_workers(a);
    ended = co_await ask_workers(a, Phase::registration, requests, replies);
    if (!workers_) co_return ended;
    for (json& reply : replies) workers_->engines.push_back(reply.value("engine", json::object()));
    if (ended.kind != Kind::completed) {  // a worker without an engine is of no use to the next case
      co_await retire(std::move(workers_));
      co_return ended;
    }
  }
  name_workers(a);
  if (workers_->engines[0].contains("version")) a.result.facts["engine_version"] = workers_->engines[0]["version"];
  for (const auto& child : workers_->children) {
    child->out().clear();
    child->err().clear();
  }
  co_return ended;
}

void Lane::name_workers(Attempt& a) const {
  a.result.worker.clear();
  for (const auto& child : workers_->children) a.result.worker += (a.result.worker.empty() ? "" : " ") + child->name();
  a.result.worker_ordinal = workers_->ran;
  a.result.ran_before = workers_->ran_before;
}

/// Sends one request to each, then awaits all replies. Ends early only where a worker hangs or ended: then all are dead afterwards.
Task<Ended> Lane::ask_workers(Attempt& a, Phase phase, std::vector<Request>& requests, std::vector<json>& replies) {
  replies.clear();
  const std::int64_t sent = now_ns();
  const bool hello = requests[0].body["op"] == "hello";
  const std::int64_t limit = hello ? run_.options.start_deadline_ms : 0;
  for (Request& request : requests) request.child->request(std::move(request.body), request.fds);
  Ended first;
  first.phase = phase;
  for (Request& request : requests) {
    Reply reply = co_await await_worker(a, *request.child, phase, sent, limit);
    Ended one;
    if (reply.kind == Reply::Kind::ended) {
      one = co_await crashed(a, *reply.child, reply.phase, phase);
      co_return one;
    }
    if (reply.kind == Reply::Kind::late) {
      one = co_await hung(a, *reply.child, reply.phase, sent, limit);
      co_return one;
    }
    one = judge(a, *request.child, phase, reply.body);
    if (one.kind != Kind::completed && first.kind == Kind::completed) first = std::move(one);
    replies.push_back(std::move(reply.body));
  }
  if (first.kind == Kind::crashed) {  // it said itself that it is at an end
    Child& child = *requests[0].child;
    add_output(a, child);
    co_await kill_workers();
  }
  co_return first;
}

/// What a worker's reply says.
Ended Lane::judge(Attempt& a, Child& child, Phase phase, const json& reply) {
  Ended ended;
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
    ended.type = text("type"), ended.text = text("text"), ended.at = text("at");
    return true;
  };
  if (take("refused", Kind::refused) || take("raised", Kind::raised) || take("skipped", Kind::skipped)) return ended;
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
  ended.text = "a worker's reply says neither ok nor what went wrong: " + process::dump(reply).substr(0, 200);
  return ended;
}

Task<Lane::Reply> Lane::await_worker(Attempt& a, Child& child, Phase phase, std::int64_t sent, std::int64_t limit) {
  std::int64_t longest = 0;  // a worker that keeps entering phases does not live for ever
  for (int i = 0; i < phase_count; ++i) longest += limit_ms(a.resolved, static_cast<Phase>(i));
  if (limit > 0) longest = limit;
  const auto phase_of = [&](const Child& who) {
    const process::StatusPage& page = *who.page();
    const std::uint32_t number = page.phase.load(std::memory_order_acquire);
    const bool told = page.key.load(std::memory_order_acquire) == a.key && page.phase_since_ns.load() >= sent &&
                      number < static_cast<std::uint32_t>(phase_count);
    return told ? static_cast<Phase>(number) : phase;
  };
  Reply reply;
  for (;;) {
    check_running();
    if (auto message = child.take()) {
      reply.body = std::move(message->body);
      co_return reply;
    }
    for (const auto& other : workers_->children) {
      if (!other->ended()) continue;
      reply.kind = Reply::Kind::ended;
      reply.child = other.get();
      reply.phase = phase_of(*other);
      co_return reply;
    }
    const Phase in = phase_of(child);
    const std::int64_t since = in == phase ? sent : std::max(sent, child.page()->phase_since_ns.load());
    const std::int64_t deadline = std::min(since + (limit > 0 ? limit : limit_ms(a.resolved, in)) * ms, sent + longest * ms);
    if (now_ns() >= deadline) {
      reply.kind = Reply::Kind::late;
      reply.child = &child;
      reply.phase = in;
      co_return reply;
    }
    running_->phase = in;
    co_await wake_.wait(deadline);
  }
}

/// A worker that ended, or broke the protocol: says how, then ends what is left of all workers.
Task<Ended> Lane::crashed(Attempt& a, Child& child, Phase phase, Phase asked) {
  if (child.lost()) throw Lost{"the warden ended"};
  Ended ended;
  ended.kind = Kind::crashed;
  ended.phase = phase;
  ended.role = role_of(child);
  const process::StatusView status = process::view(*child.page());
  if (status.key == a.key) {
    ended.note = status.note;
    ended.progress = progress_text(status);
  }
  if (child.start_failure()) {
    ended.kind = Kind::error;
    ended.text = "a worker could not be started: " + *child.start_failure();
    workers_.reset();
    co_return ended;
  }
  const bool garbage = child.fault() && child.fault()->fault != process::FrameFault::eof;
  const std::int64_t patience = now_ns() + 2'000 * ms;  // closed its channel: usually because it is ending
  while (!child.exited() && !garbage && now_ns() < patience) {
    check_running();
    co_await wake_.wait(patience);
  }
  const std::optional<Ending> end = child.ending();
  const bool over_limit = workers_->over_limit;
  child.drain();
  add_output(a, child);
  add_evidence(a.result, "status", status_text(status, now_ns()) + (end ? "" : proc_text(child.pid())));
  a.result.peak_bytes = std::max(a.result.peak_bytes, end ? end->max_rss : 0);

  const std::uint64_t limit = run_.options.memory_limit;
  const bool near_limit = limit != 0 && end && static_cast<std::uint64_t>(end->max_rss) > limit / 4 * 3;
  const bool truncated = child.fault() && child.fault()->fault == process::FrameFault::truncated;
  if (over_limit || (near_limit && end && WIFSIGNALED(end->status))) {
    ended.signal = "memory limit";
    ended.text = "the worker had more than its limit of " + std::to_string(limit >> 20) + " MiB of memory";
    if (!over_limit) ended.text += ", and ended by " + process::signal_name(WTERMSIG(end->status));
  } else if (garbage && !(truncated && end && WIFSIGNALED(end->status))) {
    ended.signal = "protocol";
    ended.phase = asked;  // where it was when we saw it is chance
    ended.text = child.fault()->what();
  } else if (!end) {
    ended.signal = "protocol";
    ended.text = "the worker closed its channel and went on running";
  } else if (WIFSIGNALED(end->status)) {
    ended.signal = process::signal_name(WTERMSIG(end->status));
  } else {
    ended.signal = "exit " + std::to_string(WEXITSTATUS(end->status));
    ended.text = "the worker ended by itself in the middle of a case";
  }
  const bool from_outside = end && WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGKILL && !over_limit && !near_limit;
  co_await kill_workers();
  // Nobody dies of SIGKILL by itself: a person, or the kernel for want of memory. Not the case's doing until it happens again.
  if (from_outside && a.number < attempts_allowed) throw Lost{"a worker was ended by SIGKILL from outside"};
  if (from_outside) ended.text = "ended from outside (a person, or the kernel for want of memory), " + std::to_string(a.number) + " times";
  co_return ended;
}

/// A worker that passed a deadline: tells stalled from runaway, keeps what can be known, then ends it.
Task<Ended> Lane::hung(Attempt& a, Child& child, Phase phase, std::int64_t sent, std::int64_t limit) {
  Ended ended;
  ended.kind = Kind::hung;
  ended.phase = phase;
  ended.role = role_of(child);
  ended.deadline_ms = limit > 0 ? limit : limit_ms(a.resolved, phase);
  const std::int64_t window = 200;
  const std::int64_t busy_before = busy_ns(child.pid());
  const process::StatusView before = process::view(*child.page());
  co_await sleep_ms(window);
  const process::StatusView after = process::view(*child.page());
  const std::int64_t busy = busy_ns(child.pid()) - busy_before;
  const bool moving = after.done != before.done || after.phase != before.phase;
  ended.hang = moving || busy * 2 > window * ms ? HangKind::runaway : HangKind::stalled;
  const std::int64_t since = after.key == a.key && after.since_ns >= sent ? after.since_ns : sent;
  ended.after_ms = (now_ns() - since) / ms;
  ended.progress = progress_text(after);
  if (after.key == a.key) ended.note = after.note;
  if (const auto stat = process::read_stat(child.pid()); stat && (stat->state == 'T' || stat->state == 't'))
    ended.text = "the process is stopped";

  for (const auto& worker : workers_->children) co_await gather(a, *worker);
  if (run_.options.hold) co_await hold(a, child);
  for (const auto& worker : workers_->children) {
    worker->drain();
    add_output(a, *worker);
  }
  co_await kill_workers();
  co_return ended;
}

/// Ends workers with everything that they started, and proves it.
Task<void> Lane::end(Workers& workers) {
  for (const auto& child : workers.children) child->kill();
  const std::int64_t patience = now_ns() + 20'000 * ms;
  for (const auto& child : workers.children) {
    while (!child->killed() && !child->start_failure() && now_ns() < patience) {
      check_running();
      co_await wake_.wait(patience);
    }
    if (!child->killed()) continue;
    for (const json& left : child->killed()->left) {
      const std::string words = "process " + std::to_string(left.value("pid", 0)) + " (" + left.value("command", "") + ") of " +
                                child->name() + " does not end: state " + left.value("state", "") + ", in " + left.value("wchan", "");
      run_.summary.left_behind.push_back(words);
      run_.say(words);
    }
  }
}

/// The present case's workers are not to be trusted any more.
Task<void> Lane::kill_workers() {
  if (!workers_) co_return;
  const std::unique_ptr<Workers> workers = std::move(workers_);
  co_await end(*workers);
}

/// Healthy workers: their cases become final first, then they end by themselves, so that engines can clean up; then as above.
Task<void> Lane::retire(std::unique_ptr<Workers> workers) {
  if (!workers) co_return;
  co_await settle(true, workers->id);
  for (const auto& child : workers->children)
    if (!child->ended()) child->request({{"op", "bye"}});
  const std::int64_t patience = now_ns() + 3'000 * ms;
  for (const auto& child : workers->children)
    while (!child->exited() && !child->lost() && !child->start_failure() && now_ns() < patience) {
      check_running();
      co_await wake_.wait(patience);
    }
  co_await end(*workers);
}

// ---- strays, memory, output -----------------------------------------------------------------------------------------

/// Processes alive now, started after `last_pid`, that belong to this lane's workers and are none of the run's own.
std::vector<std::string> Lane::strays(std::int64_t last_pid) const {
  std::vector<std::string> found;
  for (const pid_t id : run_.pids.created_since(last_pid)) {
    if (run_.link.knows(id)) continue;
    const auto stat = process::read_stat(id);
    if (!stat || stat->dead()) continue;
    const std::string mark = process::environment_of(id, process::mark_variable);
    bool ours = false;
    for (const auto& child : workers_->children)
      ours = ours || mark == child->mark() || stat->parent == child->pid() || stat->session == child->pid() || stat->group == child->pid();
    ours = ours || (mark.empty() && stat->parent == run_.link.warden_pid());
    if (!ours || process::thread_group_of(id) != id) continue;
    found.push_back("process " + std::to_string(id) + " (" + stat->command + ")");
  }
  return found;
}

Task<void> Lane::look_for_strays(Attempt& a) {
  std::vector<std::string> found = strays(a.last_pid);
  // One that is just ending, or one of the run's own of which the warden has not told us yet, is none.
  for (int i = 0; i < 10 && !found.empty(); ++i) {
    co_await sleep_ms(15);
    found = strays(a.last_pid);
  }
  if (found.empty()) co_return;
  a.stray = "left a process behind: ";
  for (std::size_t i = 0; i < found.size(); ++i) a.stray += (i == 0 ? "" : ", ") + found[i];
  for (const auto& child : workers_->children) add_output(a, *child);
  co_await kill_workers();
}

void Lane::watch_memory() {
  if (!workers_ || run_.options.memory_limit == 0 || workers_->over_limit) return;
  for (const auto& child : workers_->children) {
    if (child->pid() == 0 || child->ended()) continue;
    if (process::private_bytes(child->pid()) <= run_.options.memory_limit) continue;
    workers_->over_limit = true;
    child->kill();
  }
}

void Lane::add_output(Attempt& a, Child& child) {
  const std::string who = role_of(child) == "both" ? "" : " (" + role_of(child) + ")";
  add_evidence(a.result, "stdout" + who, child.out().text());
  add_evidence(a.result, "stderr" + who, child.err().text());
}

// ---- evidence -------------------------------------------------------------------------------------------------------

Task<void> Lane::gather(Attempt& a, Child& child) {
  const std::string who = role_of(child) == "both" ? "" : " (" + role_of(child) + ")";
  const process::StatusView status = process::view(*child.page());
  add_evidence(a.result, "status" + who, status_text(status, now_ns()) + proc_text(child.pid()));
  if (!run_.options.stacks || child.exited()) co_return;
  const std::string pid = std::to_string(child.pid());
  std::string reasons;
  const std::vector<std::vector<std::string>> tools = {
      {"eu-stack", "-p", pid, "-n", "64"},
      {"gdb", "-nx", "-batch", "-p", pid, "-ex", "set pagination off", "-ex", "thread apply all bt 64"}};
  for (const std::vector<std::string>& tool : tools) {
    std::vector<std::string> argv = tool;
    argv[0] = find_program(tool[0]);
    if (argv[0].empty()) {
      reasons += tool[0] + ": not installed\n";
      continue;
    }
    std::string output;
    const bool good = co_await run_tool(argv, tool[0] == "gdb" ? 20'000 : 10'000, output);
    if (good && output.find('#') != std::string::npos) {
      add_evidence(a.result, "stack" + who, reasons + output);
      co_return;
    }
    reasons += tool[0] + ": " + (output.empty() ? "said nothing" : output.substr(0, 4000)) + "\n";
  }
  add_evidence(a.result, "stack" + who, "no stack could be taken:\n" + reasons);
}

Task<bool> Lane::run_tool(const std::vector<std::string>& argv, std::int64_t timeout_ms, std::string& output) {
  Child::Spec spec;
  spec.argv = argv;
  spec.name = argv[0];
  spec.channel = false;
  spec.environment = {{"DEBUGINFOD_URLS", nullptr}};  // no downloads in the middle of a run
  Child tool(run_.loop, run_.link, wake_, spec);
  const std::int64_t deadline = now_ns() + timeout_ms * ms;
  while (!(tool.exited() && tool.streams_closed()) && !tool.start_failure() && now_ns() < deadline) {
    check_running();
    co_await wake_.wait(deadline);
  }
  const bool late = !tool.exited() && !tool.start_failure();
  if (late) {
    tool.kill();
    const std::int64_t patience = now_ns() + 6'000 * ms;
    while (!tool.killed() && now_ns() < patience) {
      check_running();
      co_await wake_.wait(patience);
    }
  }
  tool.drain();
  output = tool.out().text() + tool.err().text();
  if (late) output += "\n(no end within " + std::to_string(timeout_ms) + " ms)";
  if (tool.start_failure()) output = *tool.start_failure();
  co_return tool.exited() && WIFEXITED(tool.ending()->status) && WEXITSTATUS(tool.ending()->status) == 0;
}

Task<void> Lane::hold(Attempt& a, Child& child) {
  run_.say("held: " + a.result.id + " hangs in " + child.name() + ", process " + std::to_string(child.pid()));
  for (const auto& worker : workers_->children)
    run_.say("  " + role_of(*worker) + ": gdb -p " + std::to_string(worker->pid()));
  run_.say("  go on: end that process, or press Ctrl-C here");
  ++run_.holding;
  hold_released_ = false;
  while (!hold_released_ && !child.exited()) {
    if (run_.stopping || run_.link.lost()) break;
    co_await wake_.wait();
  }
  --run_.holding;
}

// ---- the checker ----------------------------------------------------------------------------------------------------

void Lane::need_checker() {
  if (checker_ && !checker_->ended()) return;
  if (checker_) throw Lost{"the checker ended"};
  Child::Spec spec;
  spec.name = "lane" + std::to_string(number_) + "/checker" + std::to_string(++checker_count_);
  spec.argv = {run_.programs + "/kvcts-checker"};
  spec.mark = run_.link.run() + "/" + std::to_string(number_) + "/checker" + std::to_string(checker_count_);
  spec.accept_fds = true;
  checker_ = std::make_unique<Child>(run_.loop, run_.link, wake_, spec);
}

Task<json> Lane::checker_reply(const ResolvedCase* resolved, std::vector<process::UniqueFd>* fds) {
  std::int64_t limit = run_.options.checker_deadline_ms;
  if (resolved != nullptr)
    for (const Phase phase : {Phase::allocate, Phase::generate, Phase::compare, Phase::diagnose})
      limit = std::max(limit, 2 * limit_ms(*resolved, phase));
  const std::int64_t deadline = now_ns() + limit * ms;
  for (;;) {
    check_running();
    if (!checker_) throw Lost{"the checker ended"};
    if (auto message = checker_->take()) {
      if (fds != nullptr) *fds = std::move(message->fds);
      co_return std::move(message->body);
    }
    if (checker_->ended()) {
      const std::int64_t patience = now_ns() + 1'000 * ms;
      while (!checker_->exited() && !checker_->lost() && !checker_->start_failure() && now_ns() < patience) {
        check_running();
        co_await wake_.wait(patience);
      }
      checker_->drain();
      std::string why = "the checker ended";
      if (checker_->start_failure()) why += ": " + *checker_->start_failure();
      else if (checker_->ending() && WIFSIGNALED(checker_->ending()->status))
        why += " by " + process::signal_name(WTERMSIG(checker_->ending()->status));
      else if (checker_->fault() && checker_->fault()->fault != process::FrameFault::eof) why += std::string(": ") + checker_->fault()->what();
      const std::string words = checker_->err().text();
      if (!words.empty()) why += "; it wrote: " + words.substr(words.size() > 2000 ? words.size() - 2000 : 0);
      throw Lost{why};
    }
    if (now_ns() >= deadline) {
      checker_->kill();
      const std::int64_t patience = now_ns() + 6'000 * ms;
      while (!checker_->ended() && now_ns() < patience) {
        check_running();
        co_await wake_.wait(patience);
      }
      throw Lost{"the checker did not answer within " + std::to_string(limit) + " ms"};
    }
    co_await wake_.wait(deadline);
  }
}

/// Takes the replies that an attempt which was given up left behind, and closes its case.
Task<void> Lane::drain_checker(std::uint64_t key) {
  json close = {{"op", "close"}, {"key", key}};
  checker_->request(std::move(close));
  const std::int64_t deadline = now_ns() + run_.options.checker_deadline_ms * ms;
  while (checker_ && !checker_->ended() && now_ns() < deadline) {
    while (checker_->take()) {}
    if (checker_->unanswered() == 0) break;
    check_running();
    co_await wake_.wait(deadline);
  }
}

/// Cases whose memory the checker held cannot be called final any more: they run again.
void Lane::lose_checker(const std::string& why) {
  if (checker_ && !checker_->exited()) checker_->kill();
  checker_.reset();
  for (Watched& w : watched_) {
    if (w.lost < losses_allowed) {
      again_.push_back({w.job, w.number, w.lost + 1});
      continue;
    }
    w.result.outcome = Outcome::error;
    w.result.message = why + " while the case's memory was watched; given up after " + std::to_string(w.lost + 1) + " times";
    run_.emit(w.job, std::move(w.result));
  }
  watched_.clear();
  watched_bytes_ = 0;
}

/// Looks once more at the memory of finished cases whose time has come, and hands their results out. all: waits for each (only: until
/// none of those workers is among them).
Task<void> Lane::settle(bool all, std::uint64_t only) {
  const auto wanted = [&] {
    return !watched_.empty() &&
           (only == 0 || std::any_of(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.workers == only; }));
  };
  while (wanted()) {
    const bool full = watched_.size() > run_.options.watched_cases || watched_bytes_ > run_.options.watched_bytes;
    const std::int64_t now = now_ns();
    std::size_t batch = 0;
    if (full) batch = std::min(recheck_batch, watched_.size());
    while (batch < watched_.size() && watched_[batch].due_ns <= now) ++batch;
    if (batch == 0) {
      if (!all) co_return;
      check_running();
      co_await wake_.wait(watched_.front().due_ns);
      continue;
    }
    for (std::size_t i = 0; i < batch; ++i) {
      json recheck = {{"op", "recheck"}, {"key", watched_[i].key}};
      json close = {{"op", "close"}, {"key", watched_[i].key}};
      checker_->request(std::move(recheck));
      checker_->request(std::move(close));
    }
    for (std::size_t i = 0; i < batch; ++i) {
      json rechecked = co_await checker_reply(nullptr);
      json closed = co_await checker_reply(nullptr);
      Watched w = std::move(watched_.front());
      watched_.pop_front();
      watched_bytes_ -= w.memory_bytes;
      if (workers_ && workers_->id == w.workers) workers_->to_forget.push_back(w.key);
      for (const auto& kept : kept_)
        if (kept->id == w.workers) kept->to_forget.push_back(w.key);
      if (rechecked.value("changed", false)) decide_late_write(rechecked, w.result);
      if (rechecked.contains("error")) {
        w.result.outcome = Outcome::error;
        w.result.message = rechecked["error"].value("text", "recheck failed");
      }
      run_.emit(w.job, std::move(w.result));
    }
  }
}

}  // namespace kvcts::supervisor
