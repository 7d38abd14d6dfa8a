// The checkers of an executor: one, or one on each host of a run, each with the memory of its own side.
//
// Both are asked the same; each knows the whole case, so that it needs nothing of the other, and compares its own side only.
// Their answers become one.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "case/result.hpp"
#include "run/supervisor/checker_link.hpp"

namespace kvcts::supervisor {

class Checkers {
 public:
  Checkers(Run& run, int executor, Signal& wake, std::function<void()> check_running);

  void need();
  void request(nlohmann::json body);
  /// Of all: the oldest request that is not answered. As of CheckerLink; but where one is gone with its host, compare and
  /// close are answered by the other one alone, with "absent": why.
  Task<nlohmann::json> reply(std::int64_t limit_ms, std::vector<process::UniqueFd>* fds = nullptr);
  Task<void> drain(std::uint64_t key);
  bool there() const;
  bool ended() const;
  void forget();
  void kill();

 private:
  std::vector<std::unique_ptr<CheckerLink>> each_;  ///< one; or the producer's and the consumer's
  std::deque<process::CheckerRequest> asked_;
};

/// What two checkers found, each in the memory of its side. The consumer's says what arrived.
Report together(const Report& producer, const Report& consumer);
LateWrite together(const LateWrite& producer, const LateWrite& consumer);

}  // namespace kvcts::supervisor
