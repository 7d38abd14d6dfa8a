// How an entry of cases/engines is started, for programs that talk to the ABI alone.
#pragma once

#include "catalogue/entries.hpp"
#include "engines/testing/target.hpp"

namespace kvcts::testing {

inline Placement placement_of(const catalogue::EngineEntry& engine) {
  const auto texts = [](const nlohmann::json& values) {
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : values.items()) out[key] = value.is_string() ? value.get<std::string>() : value.dump();
    return out;
  };
  return {engine.id, engine.plugin, static_cast<int>(engine.processes), texts(engine.options), texts(engine.environment)};
}

}  // namespace kvcts::testing
