// Which numbers of a hypothesis the case knows.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnose/incremental_replay.hpp"

namespace kvcts::scenario {

/// Numbers of the layouts in changed steps that nothing in the case declares, ascending: extents of axes (counts), and
/// strides (bytes) that are no declared one and no product of declared extents. Bases and ids are read off the bytes and are
/// not among them.
std::vector<std::int64_t> undeclared_numbers(const Scenario& scenario, const CandidateSteps& bodies);

}  // namespace kvcts::scenario
