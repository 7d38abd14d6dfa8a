// The order of actions: the intended sequence, the actual one, and those that a hypothesis proposes.
#pragma once

#include <string>
#include <vector>

#include "case/scenario.hpp"

namespace kvcts::scenario {

struct StepExecution {
  enum class Part : std::uint8_t {
    whole,
    capture,  ///< a late action takes its source bytes (reads: issue) or its block table (table: issue) here
    deliver,  ///< and acts here
  };
  std::string step;  ///< name of its step
  Action action;
  Part part{Part::whole};
  bool takes_bytes{false}, takes_table{false};  ///< what capture took
  bool operator==(const StepExecution&) const = default;
};
using Sequence = std::vector<StepExecution>;

Sequence intended_sequence(const Scenario& scenario);
/// With what `actually` says: other bodies, skipped, replaced, or moved after or before other steps. Throws
/// std::runtime_error when `after` or `before` names no step.
Sequence actual_sequence(const Scenario& scenario);
/// A sequence from bodies and places: `steps[i]` replaces step i of the scenario (empty = skipped).
Sequence sequence_of(const Scenario& scenario, const std::vector<std::vector<Action>>& steps);

}  // namespace kvcts::scenario
