// The lane's checker: its replies, its loss, and the memory of finished cases that it watches.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>

#include "run/supervisor/lane.hpp"

namespace kvcts::supervisor {

using nlohmann::json;

namespace {
constexpr std::size_t recheck_batch = 16;
constexpr int losses_allowed = 10;
}  // namespace

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
  const std::int64_t deadline = now_ns() + limit * ns_per_ms;
  for (;;) {
    check_running();
    if (!checker_) throw Lost{"the checker ended"};
    if (auto message = checker_->take()) {
      if (fds != nullptr) *fds = std::move(message->fds);
      co_return std::move(message->body);
    }
    if (checker_->ended()) {
      const std::int64_t patience = now_ns() + 1'000 * ns_per_ms;
      while (!checker_->exited() && !checker_->lost() && !checker_->start_failure() && now_ns() < patience) {
        check_running();
        co_await wake_.wait(patience);
      }
      checker_->drain();
      std::string why = "the checker ended";
      if (checker_->start_failure())
        why += ": " + *checker_->start_failure();
      else if (checker_->ending() && WIFSIGNALED(checker_->ending()->status))
        why += " by " + process::signal_name(WTERMSIG(checker_->ending()->status));
      else if (checker_->fault() && checker_->fault()->fault != process::FrameFault::eof)
        why += std::string(": ") + checker_->fault()->what();
      const std::string words = checker_->err().text();
      if (!words.empty()) why += "; it wrote: " + words.substr(words.size() > 2000 ? words.size() - 2000 : 0);
      throw Lost{why};
    }
    if (now_ns() >= deadline) {
      checker_->kill();
      const std::int64_t patience = now_ns() + 6'000 * ns_per_ms;
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
  const std::int64_t deadline = now_ns() + run_.options.checker_deadline_ms * ns_per_ms;
  while (checker_ && !checker_->ended() && now_ns() < deadline) {
    while (checker_->take()) {
    }
    if (checker_->unanswered() == 0) break;
    check_running();
    co_await wake_.wait(deadline);
  }
}

/// Cases whose memory the checker held cannot be called final any more: they run again.
void Lane::lose_checker(const std::string& why) {
  if (checker_ && !checker_->exited()) checker_->kill();
  checker_.reset();
  std::deque<Watched> rest;
  for (Watched& w : watched_) {
    w.last.reset();
    if (!w.open) {
      rest.push_back(std::move(w));
    } else if (w.lost < losses_allowed) {
      again_.push_back({w.job, w.number, w.lost + 1});
    } else {
      w.result.outcome = Outcome::error;
      w.result.message = why + " while the case's memory was watched; given up after " + std::to_string(w.lost + 1) + " times";
      run_.emit(w.job, std::move(w.result));
    }
  }
  watched_ = std::move(rest);
}

/// The case is over, and its workers live on: somebody could still write.
void Lane::watch(Attempt& a, Ended::Kind ended) {
  no_longer_last(workers_->id);
  const bool few = run_.jobs.count <= run_.options.watch_all;
  const std::int64_t duration = few ? watch_ms(a.resolved, run_.options) : std::max(a.resolved.settle_ms, watched_longer(a) ? run_.options.watch_ms : 0);
  watched_.push_back({a.job, a.key, std::move(a.result), ended, a.memory_bytes, now_ns() + duration * ns_per_ms, a.number, a.lost, workers_->id,
                      std::make_unique<ResolvedCase>(std::move(a.resolved))});
}

/// Another library may bear the name of the suite's own (KVCTS_ENGINE_PATH), and a program moves bytes itself.
bool nobody_left_to_write(const ResolvedCase& c) {
  return c.engine.plugin == "kvcts_engine_memcpy" && !is_program(c) && std::getenv("KVCTS_ENGINE_PATH") == nullptr;
}

std::int64_t watch_ms(const ResolvedCase& c, const Options& options) {
  if (options.watch_asked) return options.watch_ms;
  const bool default_settle = c.settle_ms == ResolvedCase{}.settle_ms;
  if (c.settle_ms == 0 || (default_settle && nobody_left_to_write(c))) return 0;
  return std::max(c.settle_ms, options.watch_ms);
}

/// In a long run a sample is watched for longer than its settle: the first case of each engine and direction, and of the others one in
/// `watch_every` by its id. A case that is not watched at all (settle 0) stays so. In a short one: watch_ms().
bool Lane::watched_longer(const Attempt& a) {
  const ResolvedCase& c = a.resolved;
  if (c.settle_ms == 0) return false;
  const bool first = run_.watched_ways.insert((is_program(c) ? c.connector.name : c.engine.name) + " " + c.op).second;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : a.result.id) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return first || hash % run_.options.watch_every == 0;
}

void Lane::no_longer_last(std::uint64_t workers) {
  for (Watched& w : watched_)
    if (w.workers == workers) w.last.reset();
}

/// The next case that waits for its time only.
const Lane::Watched* Lane::next_due(std::uint64_t only) const {
  const Watched* next = nullptr;
  for (const Watched& w : watched_)
    if (!w.last && (only == 0 || w.workers == only) && (next == nullptr || w.due_ns < next->due_ns)) next = &w;
  return next;
}

/// Keys of the cases whose turn it is: their time has come, or more memory is watched than may be.
std::vector<std::uint64_t> Lane::ripe() const {
  std::vector<const Watched*> all;
  std::size_t open = 0;
  std::int64_t bytes = 0;
  for (const Watched& w : watched_) {
    if (w.open) ++open, bytes += w.memory_bytes;
    if (w.open || !w.last) all.push_back(&w);
  }
  const bool full = open > run_.options.watched_cases || bytes > run_.options.watched_bytes;
  // Those that wait for their workers come last.
  std::sort(all.begin(), all.end(), [](const Watched* x, const Watched* y) { return std::pair(x->last != nullptr, x->due_ns) < std::pair(y->last != nullptr, y->due_ns); });
  const std::int64_t now = now_ns();
  std::vector<std::uint64_t> keys;
  for (const Watched* w : all)
    if ((!w->last && (!w->open || w->due_ns <= now)) || (full && keys.size() < recheck_batch)) keys.push_back(w->key);
  return keys;
}

/// Looks once more at the memory of finished cases whose time has come, and hands their results out. all: waits for each that waits for
/// nothing but time (only: of those workers).
Task<void> Lane::settle(bool all, std::uint64_t only) {
  for (;;) {
    const std::vector<std::uint64_t> keys = ripe();
    if (keys.empty()) {
      const Watched* next = next_due(only);
      if (!all || next == nullptr) co_return;
      check_running();
      co_await wake_.wait(next->due_ns);
      continue;
    }
    const auto find = [&](std::uint64_t key) { return std::find_if(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.key == key; }); };
    for (const std::uint64_t key : keys) {
      if (!find(key)->open) continue;
      json recheck = {{"op", "recheck"}, {"key", key}};
      json close = {{"op", "close"}, {"key", key}};
      checker_->request(std::move(recheck));
      checker_->request(std::move(close));
    }
    for (const std::uint64_t key : keys) {
      if (find(key)->open) {
        const json rechecked = co_await checker_reply(nullptr);
        const json closed = co_await checker_reply(nullptr);
        Watched& w = *find(key);
        w.open = false;
        if (workers_ && workers_->id == w.workers) workers_->to_forget.push_back(w.key);
        for (const auto& kept : kept_)
          if (kept->id == w.workers) kept->to_forget.push_back(w.key);
        if (rechecked.value("changed", false)) decide_late_write(rechecked, w.ended, w.result);
        if (rechecked.contains("error")) {
          w.result.outcome = Outcome::error;
          w.result.message = rechecked["error"].value("text", "recheck failed");
        }
      }
      const auto done = find(key);
      if (done->last) continue;
      const std::size_t job = done->job;
      CaseResult result = std::move(done->result);
      watched_.erase(done);
      run_.emit(job, std::move(result));
    }
  }
}

}  // namespace kvcts::supervisor
