#include "run/store/counts.hpp"

namespace kvcts::store {

bool was_executed(Outcome outcome) {
  return outcome != Outcome::unsupported && outcome != Outcome::skipped && outcome != Outcome::not_run;
}

bool is_failure(Verdict verdict) { return verdict == Verdict::unexpected || verdict == Verdict::expired_waiver; }

bool ended_wrong(Outcome outcome, Verdict verdict) {
  return was_executed(outcome) && (is_failure(verdict) || outcome == Outcome::error || verdict == Verdict::error);
}

std::int64_t failures(const Counts& counts) {
  return counts.of(Verdict::unexpected) + counts.of(Verdict::expired_waiver) + counts.missing;
}

std::int64_t ran(const Counts& counts) {
  return counts.planned - counts.of(Outcome::unsupported) - counts.of(Outcome::skipped) - counts.of(Outcome::not_run);
}

bool incomplete(const Counts& counts) {
  std::int64_t accepted = 0;
  for (const auto& lack : counts.lacks) accepted += lack.optional ? lack.count : 0;
  return counts.of(Outcome::not_run) > 0 || counts.of(Outcome::skipped) > accepted || ran(counts) <= 0;
}

int exit_status(const Counts& counts) {
  if (counts.interrupted) return 130;
  if (counts.planned == 0) return 4;
  if (counts.of(Verdict::error) > 0 || counts.of(Outcome::error) > 0) return 3;
  if (failures(counts) > 0) return 1;
  return incomplete(counts) && !counts.allow_incomplete ? 5 : 0;
}

}  // namespace kvcts::store
