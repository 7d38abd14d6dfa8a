// Whether what the code did instead of a step made any difference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/observe.hpp"

namespace kvcts::scenario {

/// Names of the steps with `actually` that left every byte, report and ending as the intended ones would have. `right`: the
/// whole run is as intended, so all of them did. Otherwise the run is tried with one more of them as intended, again and
/// again, in up to 8 passes of `seen`.
/// None are named where that would take more than 64 MiB of memory to compare.
std::vector<std::string> steps_without_effect(const Scenario& scenario, const AddressSpace& space, const Observation& seen,
                                              bool right, std::uint64_t seed, const CopyExecutor& executor);

/// "what 'move2' did instead made no difference to any byte or report", or "" for no steps.
std::string text_without_effect(const std::vector<std::string>& steps);

}  // namespace kvcts::scenario
