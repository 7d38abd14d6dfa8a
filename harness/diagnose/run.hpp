// One scripted case from start to finish: paint the truth, run what the code did, compare every byte, name the cause.
#pragma once

#include <cstdint>

#include "case/result.hpp"
#include "case/scenario.hpp"
#include "scene/machine/copy_program.hpp"

namespace kvcts::scenario {

/// Plays what the code did and compares every byte with the truth. Throws std::runtime_error when the scenario itself is
/// invalid. `executor`: performs the copies of what the code did; {}: they are made here.
Report run_scenario(const Scenario& scenario, std::uint64_t seed, const CopyExecutor& executor = {});

/// Memory limit of a search for the cause, in bytes; a case that needs more ends without one, and says so.
inline constexpr double diagnosis_memory = 2.0 * (std::int64_t{1} << 30);

/// Works out both sequences. Throws std::runtime_error with the step's name when one requests the impossible: a pick, an
/// address or an object that the intended steps cannot mean, a place or step that does not exist.
void expect_playable(const Scenario& scenario);

}  // namespace kvcts::scenario
