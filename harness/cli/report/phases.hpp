// How a run's time divides into phases of passing cases, and the share of checking.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "run/store/reader.hpp"

namespace kvcts::report {

/// Nanoseconds of the executions that passed; those that cases share count once.
struct PhaseShares {
  std::int64_t executions{0};
  std::array<std::int64_t, phase_count> ns{};
  std::int64_t other_ns{0};  ///< of cases, in no phase: workers started, results settled
  std::int64_t run_ns{0};    ///< wall time of the run's sessions
  std::int64_t all() const;
  /// Of all(): generate (tags, poison), compare (every byte against the oracle) and diagnose together.
  double detection() const;
};
PhaseShares phase_shares(const store::RunReader& reader);

/// A table: a line a phase, then detection together.
std::string phases_text(const PhaseShares& shares);

}  // namespace kvcts::report
