// The figures of a run, and the one rule that turns them into an exit status.
#pragma once

#include <array>
#include <cstdint>

#include "case/outcome.hpp"

namespace kvcts::store {

/// Ids are what was planned; executions are what was done: cases that differ only in arch share one.
struct Counts {
  std::int64_t planned{0};                                ///< ids
  std::int64_t decided{0};                                ///< ids with a result
  std::array<std::int64_t, outcome_count> outcome{};      ///< ids; undecided ones count as NOT_RUN
  std::array<std::int64_t, verdict_count> verdict{};      ///< ids
  std::int64_t missing{0};                                ///< undecided ids that nobody declared: a failure
  std::array<std::int64_t, evidence_count> ids{};         ///< ids that were executed, by evidence
  std::array<std::int64_t, evidence_count> executions{};  ///< unique executions, by the strongest evidence they are used for
  std::int64_t case_ns{0};                                ///< wall time of all unique executions
  bool interrupted{false};                                ///< the last sitting ended by a signal
  std::int64_t of(Outcome o) const { return outcome[static_cast<std::size_t>(o)]; }
  std::int64_t of(Verdict v) const { return verdict[static_cast<std::size_t>(v)]; }
};

/// Ids whose verdict is a failure: unexpected, expired waiver, or planned and absent. XPASS is what a user needs, so it is
/// no failure, but reports name it; ERROR is the suite's own and counted apart.
std::int64_t failures(const Counts& counts);

/// 130 interrupted; 4 nothing was selected; 3 the suite's own error (wins over 1); 1 some verdict not as expected; 0
/// otherwise.
int exit_status(const Counts& counts);

}  // namespace kvcts::store
