// An executor's checker: started when needed, queried, and restarted when lost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "run/supervisor/child.hpp"
#include "run/supervisor/run.hpp"
#include "run/supervisor/task.hpp"

namespace kvcts::supervisor {

class CheckerLink {
 public:
  /// Below `host_link`, the launcher of its host. `check_running` throws if the run is over.
  CheckerLink(Run& run, Link& host_link, int executor, Signal& wake, std::function<void()> check_running)
      : run_(run), host_link_(host_link), executor_(executor), wake_(wake), check_running_(std::move(check_running)) {}

  /// Starts it if necessary. Throws Lost if it ended.
  void need();
  void request(nlohmann::json body) { child_->request(std::move(body)); }
  /// It is gone with its host: why, in words; "" = it is not.
  std::string host_lost() const { return child_ ? child_->host_lost() : ""; }
  /// Its next reply, with the descriptors that accompany it. Throws Lost if it ends, or does not answer within
  /// `limit_ms`.
  Task<nlohmann::json> reply(std::int64_t limit_ms, std::vector<process::UniqueFd>* fds = nullptr);
  /// Consumes the replies left over from an abandoned attempt, and closes its case.
  Task<void> drain(std::uint64_t key);
  bool there() const { return child_ != nullptr; }
  bool ended() const { return child_ && child_->ended(); }
  void forget() { child_.reset(); }
  void kill() {
    if (child_ && !child_->exited()) child_->kill();
    child_.reset();
  }

 private:
  static constexpr std::int64_t look_ms = 500, stopped_ms = 2'000;
  bool stands_still(std::int64_t& since) const;

  Run& run_;
  Link& host_link_;
  int executor_;
  Signal& wake_;
  std::function<void()> check_running_;
  std::unique_ptr<Child> child_;
  std::int64_t count_{0};
};

}  // namespace kvcts::supervisor
