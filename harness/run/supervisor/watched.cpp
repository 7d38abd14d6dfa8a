// The memory of finished cases, watched by the checker while their workers live on.
#include <algorithm>
#include <cstdlib>

#include "run/supervisor/case_executor.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using process::CheckerRequest;

namespace {
constexpr int losses_allowed = 10;
}  // namespace

/// The checker's next reply; `resolved`: for a request that may take as long as the case's deadlines allow.
Task<json> CaseExecutor::checker_reply(const ResolvedCase* resolved, std::vector<process::UniqueFd>* fds) {
  std::int64_t limit = run_.options.checker_deadline_ms;
  if (resolved != nullptr)
    for (const Phase phase : {Phase::allocate, Phase::generate, Phase::compare, Phase::diagnose})
      limit = std::max(limit, 2 * limit_ms(*resolved, phase));
  return checker_.reply(limit, fds);
}

/// Cases whose memory the checker held can no longer become final: they run again.
void CaseExecutor::lose_checker(const std::string& why) {
  checker_.kill();
  for (Watched& w : watched_.take_open()) {
    if (w.lost < losses_allowed) {
      retries_.push_back({w.job, w.number, w.lost + 1});
      continue;
    }
    w.result.outcome = Outcome::error;
    w.result.message = why + " while the case's memory was watched; gave up after " + std::to_string(w.lost + 1) + " times";
    run_.emit(w.job, std::move(w.result));
  }
}

/// The case is over, but its workers live on and could still write.
void CaseExecutor::watch(Attempt& a, PhaseResult::Kind ended) {
  watched_.no_longer_last(workers_->id);
  const bool few = run_.jobs.count <= run_.options.watch_all;
  const std::int64_t duration = few ? watch_ms(a.resolved, run_.options)
                                    : std::max(a.resolved.settle_ms, watched_longer(a) ? run_.options.watch_ms : 0);
  watched_.add({a.job, a.key, std::move(a.result), ended, a.memory_bytes, now_ns() + duration * ns_per_ms, a.number, a.lost,
                workers_->id, std::make_unique<ResolvedCase>(std::move(a.resolved))});
}

/// KVCTS_ENGINE_PATH may supply another library under the suite's name, and a program moves bytes itself.
bool nobody_left_to_write(const ResolvedCase& c) {
  return c.engine.plugin == "kvcts_engine_memcpy" && !is_program(c) && std::getenv("KVCTS_ENGINE_PATH") == nullptr;
}

std::int64_t watch_ms(const ResolvedCase& c, const Options& options) {
  if (options.watch_asked) return options.watch_ms;
  const bool default_settle = c.settle_ms == ResolvedCase{}.settle_ms;
  if (c.settle_ms == 0 || (default_settle && nobody_left_to_write(c))) return 0;
  return std::max(c.settle_ms, options.watch_ms);
}

/// In a long run a sample is watched for longer than its settle: the first case per engine and direction, and of the
/// others one in `watch_every` by its id. A case that is never watched (settle 0) stays so. For a short run see
/// watch_ms().
bool CaseExecutor::watched_longer(const Attempt& a) {
  const ResolvedCase& c = a.resolved;
  if (c.settle_ms == 0) return false;
  const bool first =
      run_.watched_ways.insert((is_program(c) ? c.connector.name : c.engine.name) + " " + std::string(name(c.op))).second;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : a.result.id) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return first || hash % run_.options.watch_every == 0;
}

/// Compares the memory of finished cases again when they are due, and emits their results. all: waits for every
/// case that only waits for time (only: of those workers).
Task<void> CaseExecutor::settle(bool all, std::uint64_t only) {
  for (;;) {
    const std::vector<std::uint64_t> keys = watched_.ripe(run_.options);
    if (keys.empty()) {
      const Watched* next = watched_.next_due(only);
      if (!all || next == nullptr) co_return;
      check_running();
      co_await wake_.wait(next->due_ns);
      continue;
    }
    for (const std::uint64_t key : keys) {
      if (!watched_.at(key).open) continue;
      json recheck = {{"op", CheckerRequest::recheck}, {"key", key}};
      json close = {{"op", CheckerRequest::close}, {"key", key}};
      checker_.request(std::move(recheck));
      checker_.request(std::move(close));
    }
    for (const std::uint64_t key : keys) {
      if (watched_.at(key).open) {
        const json rechecked = co_await checker_reply(nullptr);
        const json closed = co_await checker_reply(nullptr);
        Watched& w = watched_.at(key);
        w.open = false;
        if (workers_ && workers_->id == w.workers) workers_->to_forget.push_back(w.key);
        for (const auto& kept : kept_)
          if (kept->id == w.workers) kept->to_forget.push_back(w.key);
        if (const auto late = rechecked.find("late"); late != rechecked.end()) {
          const LateWrite write = late_write_from_json(*late);
          if (write.changed) decide_late_write(write, w.ended, w.result);
        }
        if (rechecked.contains("error")) {
          w.result.outcome = Outcome::error;
          w.result.message = rechecked["error"].value("text", "recheck failed");
        }
      }
      if (watched_.at(key).last) continue;
      Watched done = watched_.take(key);
      run_.emit(done.job, std::move(done.result));
    }
  }
}

}  // namespace kvcts::supervisor
