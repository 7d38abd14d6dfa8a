#include "run/supervisor/case_executor.hpp"

#include <algorithm>

#include "run/supervisor/evidence.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using process::CheckerRequest;
using Kind = PhaseResult::Kind;

CaseExecutor::CaseExecutor(Run& run, int number)
    : run_(run), number_(number), wake_(run.loop), checker_(run, number, wake_, [this] { check_running(); }) {}
CaseExecutor::~CaseExecutor() = default;

std::optional<Running> CaseExecutor::running() const { return running_; }

void CaseExecutor::check_running() const {
  if (run_.stopping) throw Interrupted{};
  if (run_.link.lost()) throw Lost{"the launcher ended"};
}

std::int64_t CaseExecutor::limit_ms(const ResolvedCase& resolved, Phase phase) const {
  const auto index = static_cast<std::size_t>(phase);
  if (resolved.deadline_ms[index] > 0) return resolved.deadline_ms[index];
  if (run_.options.deadline_ms[index] > 0) return run_.options.deadline_ms[index];
  return 10'000;
}

void CaseExecutor::enter(Attempt& a, Phase phase) {
  a.since_ns = now_ns();
  running_->phase = phase;
  running_->since_ns = a.since_ns;
}

void CaseExecutor::spend(Attempt& a, Phase phase, std::int64_t ns) {
  for (PhaseTime& time : a.result.phases) {
    if (time.phase != phase) continue;
    time.ns += ns;
    return;
  }
  a.result.phases.push_back({phase, ns});
}

std::string CaseExecutor::role_of(const Child& child) const {
  if (!workers_ || workers_->children.size() == 1) return "both";
  return workers_->children.front().get() == &child ? "producer" : "consumer";
}

Task<void> CaseExecutor::sleep_ms(std::int64_t duration) {
  const std::int64_t until = now_ns() + duration * ns_per_ms;
  while (now_ns() < until) {
    if (run_.stopping) throw Interrupted{};
    co_await wake_.wait(until);
  }
}

// ---- the executor's life ------------------------------------------------------------------------------------------------

Task<void> CaseExecutor::work() {
  try {
    for (;;) {
      std::optional<std::string> lost;
      try {
        if (!retries_.empty()) {
          const Retry again = retries_.front();
          retries_.pop_front();
          co_await run_job(again);
        } else if (const auto job = run_.next()) {
          co_await run_job(Retry{*job});
        } else if (watched_.next_due(0) != nullptr) {
          co_await settle(true);
        } else if (workers_) {
          co_await retire(std::move(workers_));
        } else if (!kept_.empty()) {
          std::unique_ptr<Workers> oldest = std::move(kept_.front());
          kept_.pop_front();
          co_await retire(std::move(oldest));
        } else {
          break;
        }
        co_await settle(false);
      } catch (const Lost& loss) {  // while cases were watched, or workers ended
        lost = loss.why;
      }
      if (lost) recover(*lost);
    }
  } catch (const Interrupted&) {
    // The launcher ends all processes when the run closes its socket.
  } catch (const Lost&) {
  } catch (...) {  // a handler of the caller
    run_.fail(std::current_exception());
  }
  running_.reset();
}

/// One of our own processes ended: its cases run again, with a new one.
void CaseExecutor::recover(const std::string& why) {
  if (run_.link.lost()) {
    workers_.reset();
    kept_.clear();
    checker_.forget();
    run_.link.restart();
  }
  lose_checker(why);
}

Task<void> CaseExecutor::run_job(Retry job) {
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
  } catch (const std::exception& error) {  // ours: no descriptors left, or a reply that violates the protocol
    lost = std::string("supervisor: ") + error.what();
    own_fault = true;
  }
  if (!lost) co_return;

  a.fds.clear();
  if (run_.link.lost()) {
    recover(*lost);
  } else {
    co_await kill_workers();
    if (checker_.there() && (checker_.ended() || own_fault))
      lose_checker(*lost);
    else if (checker_.there())
      co_await checker_.drain(a.key);
  }
  if (a.number < attempts_allowed) {
    retries_.push_back({a.job, a.number + 1, a.lost});
    co_return;
  }
  a.result.outcome = Outcome::error;
  if (a.result.id.empty()) a.result.id = run_.jobs.id(a.job);
  a.result.message = *lost + "; gave up after " + std::to_string(a.number) + " attempts";
  run_.emit(a.job, std::move(a.result));
}

Task<void> CaseExecutor::attempt_case(Attempt& a) {
  const std::int64_t begin = now_ns();
  a.result.id = run_.jobs.id(a.job);
  running_ = Running{number_, a.result.id, Phase::resolve, begin};
  PhaseResult ended = resolve(a);
  spend(a, Phase::resolve, now_ns() - begin);
  if (ended.kind == Kind::completed && !run_.options.hosts.empty()) {
    ended.text = co_await reach_hosts();
    if (!ended.text.empty()) ended.kind = Kind::error;
    a.result.facts["hosts"] = run_.hosts_facts();
  }
  if (ended.kind != Kind::completed) {
    decide(ended, std::nullopt, a.result);
  } else {
    ended = co_await host(a);
    co_await conclude(a, ended);
  }
  a.result.wall_ns = now_ns() - begin;
  co_await hand_over(a, ended.kind);
}

/// Completed: the case can run.
PhaseResult CaseExecutor::resolve(Attempt& a) {
  CaseResult& result = a.result;
  PhaseResult ended;
  try {
    a.resolved = run_.jobs.resolve(a.job);
    a.serialize = serialize(a.resolved);
    result.case_digest = a.serialize.digest;
    result.execution = a.serialize.execution;
    result.seed = a.resolved.seed;
    result.facts = a.resolved.facts;
    result.evidence = Evidence::modelled;
  } catch (const std::exception& error) {
    ended.kind = Kind::error;
    ended.phase = Phase::resolve;
    ended.text = error.what();
    return ended;
  }
  if (!run_.options.hosts.empty()) {
    ended.text = run_.fit_to_hosts(a.resolved);
    ended.phase = Phase::registration;
    if (!ended.text.empty()) ended.kind = Kind::skipped;
  }
  const auto aside = run_.set_aside.find(a.resolved.engine.plugin);
  if (aside != run_.set_aside.end()) {
    ended.kind = Kind::skipped;
    ended.phase = Phase::registration;
    ended.text = "the engine is set aside: " + aside->second;
    result.facts["set_aside"] = a.resolved.engine.plugin;
  }
  return ended;
}

/// The checker allocates and fills the memory while the workers are prepared.
Task<PhaseResult> CaseExecutor::open_case(Attempt& a) {
  a.key = run_.next_key++;
  checker_.need();
  co_await choose_workers(a.resolved);
  enter(a, Phase::allocate);
  a.last_pid = run_.pids.last();
  json open = {{"op", CheckerRequest::open}, {"key", a.key}, {"case", std::move(a.serialize.document)}};
  json fill = {{"op", CheckerRequest::fill}, {"key", a.key}, {"pass", 0}};
  checker_.request(std::move(open));
  checker_.request(std::move(fill));
  PhaseResult ended = co_await set_up_workers(a);
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
  co_return ended;
}

/// Runs the case to its end. A failure is compared as soon as it is reported; later writes from workers that live on
/// are late (settle()).
Task<PhaseResult> CaseExecutor::host(Attempt& a) {
  PhaseResult ended;
  if (is_ours(a.resolved)) {
    checker_.need();
    co_await compare(a, ended);
    co_return ended;
  }
  ended = co_await open_case(a);
  if (ended.kind == Kind::completed) ended = co_await execute(a);
  a.fds.clear();
  bool looked = false;
  if ((ended.kind == Kind::refused || ended.kind == Kind::raised) && a.opened && workers_) {
    co_await compare(a, ended);
    looked = true;
    // Registrations stay meanwhile: undoing them would stop what the engine still has under way.
    if (ended.phase == Phase::transfer || ended.phase == Phase::complete) co_await sleep_ms(a.resolved.settle_ms);
    co_await peek_memory(a, "");
  }
  if (ended.kind != Kind::completed && a.registered && workers_) {
    PhaseResult cleaned = co_await finish(a);
    if (cleaned.kind == Kind::hung || cleaned.kind == Kind::crashed) {
      ended = std::move(cleaned);
      looked = false;
    }
  }
  if (workers_) co_await look_for_orphans(a);
  if (ended.kind != Kind::completed && ended.kind != Kind::error && ended.kind != Kind::skipped && a.opened && !looked) {
    co_await compare(a, ended);
  }
  co_return ended;
}

/// The result as known before the memory was watched.
Task<void> CaseExecutor::conclude(Attempt& a, const PhaseResult& ended) {
  CaseResult& result = a.result;
  decide(ended, a.compared, result);
  if (a.late) decide_late_write(*a.late, ended.kind, result, a.late_call);
  decide_path(a.resolved.engine.path, result.facts.value("engine_claims", json()), result);
  if (run_.options.look && a.opened) {
    const Look& look = *run_.options.look;
    json request = {{"op", CheckerRequest::look},
                    {"key", a.key},
                    {"region", look.region},
                    {"offset", look.offset},
                    {"bytes", look.bytes}};
    checker_.request(std::move(request));
    add_evidence(result, "bytes", (co_await checker_reply(nullptr)).value("hex", ""));
  }
  if (run_.options.keep_plans || result.outcome != Outcome::pass) {
    if (!a.plan.is_null()) add_evidence(result, "plan", process::dump(a.plan));
    if (a.compared) add_evidence(result, "events", events_text(a.compared->events));
  }
  if (!a.orphan.empty()) decide_orphan(a.orphan, result);
  if (a.planned > 0) result.planned_bytes = a.planned;
  if (a.moved > 0) result.moved_bytes = a.moved;
  result.peak_bytes += a.memory_bytes;
}

/// Final if no process can write any more; otherwise the memory is watched first.
Task<void> CaseExecutor::hand_over(Attempt& a, Kind ended) {
  if (!a.opened) {
    run_.emit(a.job, std::move(a.result));
  } else if (workers_) {  // a worker could still write
    if (a.result.outcome == Outcome::fail || a.result.outcome == Outcome::refused)
      for (const auto& child : workers_->children) add_output(a, *child);
    watch(a, ended);
  } else {
    json close = {{"op", CheckerRequest::close}, {"key", a.key}};
    checker_.request(std::move(close));
    co_await checker_reply(nullptr);
    run_.emit(a.job, std::move(a.result));
  }
}

}  // namespace kvcts::supervisor
