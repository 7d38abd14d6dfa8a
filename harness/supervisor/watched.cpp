// The lane's checker: its replies, its loss, and the memory of finished cases that it watches.
#include <sys/wait.h>

#include <algorithm>

#include "supervisor/lane.hpp"

namespace kvcts::supervisor {

using nlohmann::json;

namespace {
constexpr std::int64_t ms = 1'000'000;
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

/// Looks once more at the memory of finished cases whose time has come, and hands their results out. all: waits for each
/// (only: until none of those workers is among them).
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
      if (rechecked.value("changed", false)) decide_late_write(rechecked, w.ended, w.result);
      if (rechecked.contains("error")) {
        w.result.outcome = Outcome::error;
        w.result.message = rechecked["error"].value("text", "recheck failed");
      }
      run_.emit(w.job, std::move(w.result));
    }
  }
}

}  // namespace kvcts::supervisor
