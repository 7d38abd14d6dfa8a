// Workers that are no longer needed end by themselves, so that engines can clean up: failures in that are theirs, too.
#include <algorithm>

#include "run/supervisor/case_executor.hpp"
#include "run/supervisor/evidence.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using process::CheckerRequest;
using process::WorkerRequest;
using Kind = PhaseResult::Kind;

namespace {
constexpr const char* between_cases = "no call (between two cases)";
constexpr const char* in_close = "close()";
constexpr const char* in_exit = "the exit of its process (destructors, exit handlers)";

/// An engine's entry names the signal with which its released code is known to end each process: then a fact, not a
/// failure.
bool is_known(const PhaseResult& ended, const EngineSpec& engine) {
  return ended.kind == Kind::crashed && ended.call == in_exit &&
         ended.signal == engine.environment.value("KVCTS_KNOWN_END", "");
}
}  // namespace

// Code that queries and ends workers uses workers_.
struct CaseExecutor::InPlace {
  InPlace(CaseExecutor& of, std::unique_ptr<Workers>& going)
      : executor(of), present(std::exchange(of.workers_, std::move(going))) {}
  CaseExecutor& executor;
  std::unique_ptr<Workers> present;
  ~InPlace() {
    if (executor.workers_) executor.kept_.push_back(std::move(executor.workers_));  // interrupted halfway: retry later
    executor.workers_ = std::move(present);
  }
};

/// Finalises their cases first, then closes their agents, then lets their processes exit. The memory of their last
/// case is compared after each step; a crash, a hang or a change there is reported in that case.
Task<void> CaseExecutor::retire(std::unique_ptr<Workers> workers) {
  if (!workers) co_return;
  InPlace place(*this, workers);
  const std::uint64_t id = workers_->id;
  co_await settle(true, id);
  std::optional<Watched> last = watched_.take_last(id);
  Attempt a{};
  if (last) {
    a.job = last->job, a.number = last->number, a.lost = last->lost;
    a.key = last->key;
    a.resolved = std::move(*last->last);
    a.result = std::move(last->result);
    a.opened = last->open;
  } else {
    a.number = attempts_allowed;  // no failure here may rerun the case
    a.result.id =
        workers_->ran_before.empty() ? workers_->signature.substr(0, workers_->signature.find('|')) : workers_->ran_before;
  }
  const auto before = running_;
  running_ = Running{number_, a.result.id, Phase::complete, now_ns()};
  std::optional<std::string> lost;
  try {
    if (last) {
      while (now_ns() < last->due_ns) {
        check_running();
        co_await wake_.wait(last->due_ns);
      }
      if (a.opened) {
        a.compared.emplace();
        co_await peek_memory(a, "");
        if (a.late) decide_late_write(*a.late, last->ended, a.result);
        a.late.reset();
      }
    }
    co_await part_from_workers(a);
    if (a.opened) {
      if (a.late) decide_late_write(*a.late, last->ended, a.result, a.late_call);
      json close = {{"op", CheckerRequest::close}, {"key", a.key}};
      checker_.request(std::move(close));
      co_await checker_reply(nullptr);
    }
  } catch (const Lost& loss) {
    lost = loss.why;
  }
  running_ = before;
  if (!lost && last) run_.emit(a.job, std::move(a.result));
  if (!lost) co_return;
  if (last && a.number < attempts_allowed) {
    retries_.push_back({a.job, a.number + 1, a.lost});
  } else if (last) {
    a.result.outcome = Outcome::error;
    a.result.message =
        *lost + " while the workers of the case were ending; gave up after " + std::to_string(a.number) + " attempts";
    run_.emit(a.job, std::move(a.result));
  }
  if (!run_.link.lost()) co_await kill_workers();  // useless without agents
  if (run_.link.lost() || !checker_.there() || checker_.ended()) throw Lost{*lost};
  if (a.opened) co_await checker_.drain(a.key);
}

Task<void> CaseExecutor::part_from_workers(Attempt& a) {
  PhaseResult ended;
  const bool gone =
      std::any_of(workers_->children.begin(), workers_->children.end(), [](const auto& child) { return child->ended(); });
  std::vector<EvidenceFile> evidence = a.result.evidence_files;
  const char* call = gone ? between_cases : in_close;
  ended = co_await ask_all(a, Phase::complete, WorkerRequest::close);
  if (a.opened) co_await peek_memory(a, call);
  if (ended.kind == Kind::completed && workers_) {
    call = in_exit;
    ended = co_await await_exits(a);
    if (a.opened) co_await peek_memory(a, call);
  }
  ended.call = call;
  if (is_known(ended, a.resolved.engine)) {
    a.result.facts["known_end"] = ended.signal + " in " + in_exit;
    a.result.evidence_files = std::move(evidence);
  } else if (ended.kind != Kind::completed) {
    decide_departure(ended, a.result);
    if (a.key == 0) run_.log("after " + a.result.id + ": " + a.result.message);
  }
  if (!workers_) co_return;
  const std::unique_ptr<Workers> workers = std::move(workers_);
  co_await end(*workers);
}

/// Sends bye, and waits until all have exited with status 0.
Task<PhaseResult> CaseExecutor::await_exits(Attempt& a) {
  for (const auto& child : workers_->children)
    if (!child->ended()) child->request({{"op", WorkerRequest::bye}});
  const std::int64_t sent = now_ns();
  const std::int64_t deadline = sent + limit_ms(a.resolved, Phase::complete) * ns_per_ms;
  for (const auto& child : workers_->children)
    while (!child->exited() && !child->lost() && !child->start_failure()) {
      check_running();
      if (now_ns() >= deadline) co_return co_await hung(a, *child, Phase::complete, sent, 0);
      co_await wake_.wait(deadline);
    }
  for (const auto& child : workers_->children) {
    if (!child->exited() || child->ending()->status == 0) continue;
    PhaseResult ended = co_await crashed(a, *child, Phase::complete, Phase::complete);
    if (ended.signal.starts_with("exit")) ended.text = "expected status 0";
    co_return ended;
  }
  co_return PhaseResult{};
}

}  // namespace kvcts::supervisor
