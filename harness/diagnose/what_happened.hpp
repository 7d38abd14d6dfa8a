// The attributions of a played scenario as facts for the rules.
#pragma once

#include <vector>

#include "case/result.hpp"
#include "diagnose/attributions.hpp"
#include "diagnose/symbol_extents.hpp"

namespace kvcts::scenario {

/// Names all content that the scenario declares, also what the intended steps put nowhere: every token of every request in
/// every generation, and what two more blocks would hold. 4-bit codes excepted. False: there is too much of it.
bool name_declared(const Scenario& scenario, SymbolTable& symbols);

/// What happened to the bytes at the check of the attributions (`check`: what must be there), in words.
std::vector<Finding> what_happened(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols,
                                   const Checkpoint& check, const Attributions& attributions);
/// The same of runs.
std::vector<Finding> what_happened(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols,
                                   const std::vector<SymbolExtent>& runs);

}  // namespace kvcts::scenario
