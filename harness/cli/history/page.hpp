// The nights before a run, for its page.
#pragma once

#include "cli/history/answers.hpp"
#include "cli/report/nights.hpp"

namespace kvcts::history {

/// Of the run's suite: the last 30 nights up to it. A row an engine: how its cases ended, and their pace (the median of the
/// times, each divided by its own median). Then what is new, flaky or slow over all nights.
report::Nights nights_before(const History& history, const store::RunInfo& run);

}  // namespace kvcts::history
