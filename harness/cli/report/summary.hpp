// The end of a run, in words.
#pragma once

#include <ostream>

#include "cli/report/console.hpp"
#include "cli/report/view.hpp"

namespace kvcts::report {

/// Failures grouped by cause with their repro lines, what was skipped and why, counts of cases and executions by evidence,
/// time, and the verdict as the last line (a terminal shows the end).
void print_summary(std::ostream& out, const RunView& view, const Terminal& terminal);

}  // namespace kvcts::report
