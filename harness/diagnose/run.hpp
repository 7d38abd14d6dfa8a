// One scripted case from beginning to end: paint the truth, run what the code did, compare every byte, name the cause.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "case/script.hpp"
#include "scene/machine/tape.hpp"

namespace kvcts::script {

/// The reply of `compare` (process/protocol.hpp) for a scripted case: outcome, class, phase, hang, signal, message,
/// wrong_bytes, first_wrong, checked_bytes, expected_bytes, diagnosis, state, events, tried, ns. Throws std::runtime_error
/// when the script itself makes no sense. `mover`: carries out the copies of what the code did; {}: they are made here.
nlohmann::json run_script(const Script& script, std::uint64_t seed, const Mover& mover = {});

/// What a search for the cause may take of memory, in bytes; a case that would need more ends without one, and says so.
inline constexpr double diagnosis_memory = 2.0 * (std::int64_t{1} << 30);

/// Works both sequences out, and throws std::runtime_error with the step's name where one asks for what cannot be: a pick,
/// an address or an object that the intended steps cannot mean, a place or a step that does not exist.
void expect_playable(const Script& script);

}  // namespace kvcts::script
