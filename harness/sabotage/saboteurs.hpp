// Where a saboteur (cases/saboteurs/*.yaml) stands in a case: in the place of its engine, connector or reader.
#pragma once

#include "case/case.hpp"
#include "catalogue/saboteur.hpp"

namespace kvcts::sabotage {

using Saboteur = catalogue::SaboteurEntry;

/// Is there a place in the case that the saboteur could take? Says no also where right code does not end in PASS.
bool fits(const Saboteur& saboteur, const ResolvedCase& resolved);

/// It is wrong before an engine is asked: any engine can carry what it plans.
bool sends_a_plan(const Saboteur& saboteur);

/// Puts it there. Nothing else of the case changes but how long memory is watched; the checker's diagnosis does not see
/// these places.
void put_into(const Saboteur& saboteur, ResolvedCase& resolved);

}  // namespace kvcts::sabotage
