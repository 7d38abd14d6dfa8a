// How the program ends, and the errors that lead there. One place for exit statuses.
#pragma once

#include <stdexcept>

namespace kvcts::cli {

/// Exit statuses of every verb (`check` has its own above 9: compat/answer.hpp).
enum Exit : int {
  exit_as_expected = 0,       ///< every verdict as expected
  exit_unexpected = 1,        ///< some are not
  exit_usage = 2,             ///< wrong flags, unknown names, unreadable files
  exit_own_error = 3,         ///< the suite's own fault; wins over exit_unexpected
  exit_nothing_selected = 4,  ///< a selection without a single case
  exit_incomplete = 5,        ///< something planned was not run, or nothing was
  exit_waived = 6,            ///< of verify: nothing is wrong, but the product fails what its waivers declare
  exit_interrupted = 130,
};

/// The user's mistake: one clear line, exit_usage.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A selection without a single case, with the reason: exit_nothing_selected.
struct NothingSelected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace kvcts::cli
