// What two hosts of a run must have in common.
#pragma once

#include <nlohmann/json.hpp>

namespace kvcts::process {

/// Digests (BLAKE2b) of what this installation runs, by kind: {"programs", "engines", "connectors", "cases"}.
nlohmann::json installed_digests();

}  // namespace kvcts::process
