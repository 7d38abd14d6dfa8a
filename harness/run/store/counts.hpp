// The figures of a run, and the one rule that turns them into an exit status.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "case/outcome.hpp"

namespace kvcts::store {

/// Ids that were skipped because one thing is missing.
struct Lack {
  std::string name;      ///< "nixl-1.5.1", "gpu", "vllm"
  bool optional{false};  ///< the suite that declares the case accepts that it is missing
  std::int64_t count{0};
};

/// Ids count what was planned, executions what was done: cases that differ only in arch share one execution.
struct Counts {
  std::int64_t planned{0};                                ///< ids
  std::int64_t decided{0};                                ///< ids with a result
  std::array<std::int64_t, outcome_count> outcome{};      ///< ids; undecided ones count as NOT_RUN
  std::array<std::int64_t, verdict_count> verdict{};      ///< ids
  std::int64_t missing{0};                                ///< undecided ids that were not declared as not run: a failure
  std::array<std::int64_t, evidence_count> ids{};         ///< ids that were executed, by evidence
  std::array<std::int64_t, evidence_count> executions{};  ///< unique executions, by the strongest evidence that they provide
  std::int64_t case_ns{0};                                ///< wall time of all unique executions
  bool interrupted{false};                                ///< a signal ended the last session
  bool allow_incomplete{false};                           ///< the last session had --allow-incomplete
  std::string stopped;                                    ///< why it ended early, if it did: "budget of 60 s used up"
  std::vector<Lack> lacks;                                ///< of skipped ids, most first
  std::string not_isolated;  ///< why code under test ran without a sandbox; "": it had one, or this is unknown
  std::int64_t left_out{0};  ///< ids that --budget left out of the plan
  std::int64_t of(Outcome o) const { return outcome[static_cast<std::size_t>(o)]; }
  std::int64_t of(Verdict v) const { return verdict[static_cast<std::size_t>(v)]; }
};

/// Did it run, whatever the outcome?
bool was_executed(Outcome outcome);
/// Is it neither an expected nor a known outcome? ERROR is the suite's own fault, not a failure of what is tested.
bool is_failure(Verdict verdict);
/// Did it run, or fail to, and end otherwise than it should? What was skipped or not run did not.
bool ended_wrong(Outcome outcome, Verdict verdict);

/// Ids whose verdict is a failure: unexpected, expired waiver, or planned and absent. XPASS is good news for the
/// user, so it is no failure, but reports name it; ERROR is the suite's own and counted separately.
std::int64_t failures(const Counts& counts);

/// Ids that ran, whatever the outcome.
std::int64_t ran(const Counts& counts);
/// Was something planned not run? Missing things that a suite accepts and declared constraints do not count; but a
/// run in which nothing ran is never complete.
bool incomplete(const Counts& counts);

/// The first that holds: 130 interrupted; 4 nothing was selected; 3 the suite's own error; 1 some verdict not as
/// expected; 5 incomplete, unless the session allows it; 0 otherwise.
int exit_status(const Counts& counts);

}  // namespace kvcts::store
