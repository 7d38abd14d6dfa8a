// The figures of a run, and the one rule that turns them into an exit status.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "case/outcome.hpp"

namespace kvcts::store {

/// Ids that were skipped for want of one thing.
struct Lack {
  std::string name;      ///< "nixl-1.5.1", "gpu", "vllm"
  bool optional{false};  ///< the suite that declares the case accepts that
  std::int64_t count{0};
};

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
  bool allow_incomplete{false};                           ///< the last sitting was told so
  std::string stopped;                                    ///< why it ended early, if it did: "budget of 60 s used up"
  std::vector<Lack> lacks;                                ///< of skipped ids, most first
  std::string not_isolated;  ///< why code under test ran without a sandbox; "": it had one, or nobody said
  std::int64_t left_out{0};  ///< ids that --budget left out of the plan
  std::int64_t of(Outcome o) const { return outcome[static_cast<std::size_t>(o)]; }
  std::int64_t of(Verdict v) const { return verdict[static_cast<std::size_t>(v)]; }
};

/// Did it run, whatever came of it?
bool was_executed(Outcome outcome);
/// Is it no known and no expected end? ERROR is the suite's own, and no failure of what is tested.
bool is_failure(Verdict verdict);

/// Ids whose verdict is a failure: unexpected, expired waiver, or planned and absent. XPASS is what a user needs, so it is
/// no failure, but reports name it; ERROR is the suite's own and counted apart.
std::int64_t failures(const Counts& counts);

/// Ids that ran, whatever came of it.
std::int64_t ran(const Counts& counts);
/// Was something planned not run? Lacks that a suite accepts and declared constraints are part of the plan; but a run in
/// which nothing ran is never complete.
bool incomplete(const Counts& counts);

/// 130 interrupted; 4 nothing was selected; 3 the suite's own error; 1 some verdict not as expected; 5 incomplete, unless
/// the sitting was allowed to be; 0 otherwise. The first that holds.
int exit_status(const Counts& counts);

}  // namespace kvcts::store
