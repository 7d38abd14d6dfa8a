// The machine that a ratio was measured on.
#pragma once

#include <nlohmann/json.hpp>

namespace kvcts::bench {

/// cpu, processors, memory_gib, os, compiler, isa, load (of the last minute), date (UTC, ISO 8601).
nlohmann::json machine();

}  // namespace kvcts::bench
