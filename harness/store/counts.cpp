#include "store/counts.hpp"

namespace kvcts::store {

std::int64_t failures(const Counts& counts) {
  return counts.of(Verdict::unexpected) + counts.of(Verdict::expired_waiver) + counts.missing;
}

int exit_status(const Counts& counts) {
  if (counts.interrupted) return 130;
  if (counts.planned == 0) return 4;
  if (counts.of(Verdict::error) > 0 || counts.of(Outcome::error) > 0) return 3;
  return failures(counts) > 0 ? 1 : 0;
}

}  // namespace kvcts::store
