// A run for CI systems, beside page and JUnit: annotations, a summary, numbers.
#pragma once

#include <string>

#include "cli/report/view.hpp"

namespace kvcts::report {

/// Workflow commands of GitHub Actions: an error per cause of failures (the first 10, as many as it shows of a step), a
/// warning per cause of what passed against a waiver, a notice with the headline.
std::string github_annotations(const RunView& view);
/// Markdown for $GITHUB_STEP_SUMMARY, also good for a merge request: the headline, figures, and a table of causes with their
/// repro lines.
std::string summary_markdown(const RunView& view);
/// OpenMetrics text: kvcts_cases by outcome and by verdict, kvcts_failures, kvcts_missing, kvcts_case_seconds,
/// kvcts_run_timestamp_seconds; the label suite. Ends with "# EOF".
std::string openmetrics(const RunView& view);

}  // namespace kvcts::report
