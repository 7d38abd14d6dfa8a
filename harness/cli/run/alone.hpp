// Failures that depend on what ran before them in their worker.
#pragma once

#include <string>

#include "cli/run/plan.hpp"
#include "run/store/store.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {

/// Runs failures that came after other cases in their worker again, each in a fresh one: not hangs, not what happened at or
/// after completion, and not programs that take long to start. Of an engine's many failures the first few are tried, and the
/// others if one of those passes. A result that passes alone says so in its message, in place of a diagnosis: what its bytes
/// show is a consequence. Returns a line for people, "" where nothing was tried.
std::string try_alone(Plan& plan, store::RunStore& store, supervisor::Options options);

}  // namespace kvcts::cli
