// How to start an entry of cases/engines, for programs that use only the ABI.
#pragma once

#include "case/catalogue/entries.hpp"
#include "case/texts.hpp"
#include "engines/testing/target.hpp"

namespace kvcts::testing {

inline Placement placement_of(const catalogue::EngineEntry& engine) {
  return {engine.id, engine.plugin, static_cast<int>(engine.processes), texts_of(engine.options),
          texts_of(engine.environment)};
}

}  // namespace kvcts::testing
