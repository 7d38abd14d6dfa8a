// One scripted case from beginning to end: paint the truth, run what the code did, compare every byte, name the cause.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "case/script.hpp"
#include "script/tape.hpp"

namespace kvcts::script {

/// The reply of `compare` (process/protocol.hpp) for a scripted case: outcome, class, phase, hang, signal, message, wrong_bytes, first_wrong,
/// checked_bytes, expected_bytes, diagnosis, state, events, tried, ns. Throws std::runtime_error when the script itself makes no sense.
/// `mover`: carries out the copies of what the code did; {}: they are made here.
nlohmann::json run_script(const Script& script, std::uint64_t seed, const Mover& mover = {});

}  // namespace kvcts::script
