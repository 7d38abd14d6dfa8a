#include "run/supervisor/checker_link.hpp"

#include <sys/wait.h>

#include <algorithm>

namespace kvcts::supervisor {

using nlohmann::json;
using process::CheckerRequest;

void CheckerLink::need() {
  if (child_ && !child_->ended()) return;
  if (child_) throw Lost{"the checker ended"};
  Child::Spec spec;
  spec.name = "lane" + std::to_string(executor_) + "/checker" + std::to_string(++count_);
  spec.argv = {run_.programs + "/kvcts-checker"};
  spec.mark = run_.link.run() + "/" + std::to_string(executor_) + "/checker" + std::to_string(count_);
  spec.accept_fds = true;
  child_ = std::make_unique<Child>(run_.loop, host_link_, wake_, spec);
}

Task<json> CheckerLink::reply(std::int64_t limit, std::vector<process::UniqueFd>* fds) {
  const std::int64_t deadline = now_ns() + limit * ns_per_ms;
  std::int64_t stopped_since = 0, next_look = now_ns() + look_ms * ns_per_ms;
  for (;;) {
    check_running_();
    if (!child_) throw Lost{"the checker ended"};
    if (auto message = child_->take()) {
      if (fds != nullptr) *fds = std::move(message->fds);
      co_return std::move(message->body);
    }
    if (child_->ended()) {
      const std::int64_t patience = now_ns() + 1'000 * ns_per_ms;
      while (!child_->exited() && !child_->lost() && !child_->start_failure() && now_ns() < patience) {
        check_running_();
        co_await wake_.wait(patience);
      }
      child_->drain();
      std::string why = "the checker ended";
      if (child_->start_failure())
        why += ": " + *child_->start_failure();
      else if (child_->ending() && WIFSIGNALED(child_->ending()->status))
        why += " by " + process::signal_name(WTERMSIG(child_->ending()->status));
      else if (child_->fault() && child_->fault()->fault != process::FrameFault::eof)
        why += std::string(": ") + child_->fault()->what();
      const std::string words = child_->err().text();
      if (!words.empty()) why += "; it wrote: " + words.substr(words.size() > 2000 ? words.size() - 2000 : 0);
      throw Lost{why};
    }
    if (now_ns() >= deadline) {
      child_->kill();
      const std::int64_t patience = now_ns() + 6'000 * ns_per_ms;
      while (!child_->ended() && now_ns() < patience) {
        check_running_();
        co_await wake_.wait(patience);
      }
      throw Lost{"the checker did not answer within " + std::to_string(limit) + " ms"};
    }
    if (now_ns() >= next_look) {  // not for each of the many answers that come at once
      next_look = now_ns() + look_ms * ns_per_ms;
      if (stands_still(stopped_since)) {
        child_->kill();
        throw Lost{"the checker was stopped from outside"};
      }
    }
    co_await wake_.wait(std::min(deadline, next_look));
  }
}

/// Was it stopped by a signal, for longer than it takes to resume a run that was stopped as a whole?
bool CheckerLink::stands_still(std::int64_t& since) const {
  const auto stat = process::read_stat(child_->pid());
  const bool stopped = stat && (stat->state == 'T' || stat->state == 't');
  since = !stopped ? 0 : since == 0 ? now_ns() : since;
  return stopped && now_ns() - since >= stopped_ms * ns_per_ms;
}

Task<void> CheckerLink::drain(std::uint64_t key) {
  json close = {{"op", CheckerRequest::close}, {"key", key}};
  child_->request(std::move(close));
  const std::int64_t deadline = now_ns() + run_.options.checker_deadline_ms * ns_per_ms;
  while (child_ && !child_->ended() && now_ns() < deadline) {
    while (child_->take()) {
    }
    if (child_->unanswered() == 0) break;
    check_running_();
    co_await wake_.wait(deadline);
  }
}

}  // namespace kvcts::supervisor
