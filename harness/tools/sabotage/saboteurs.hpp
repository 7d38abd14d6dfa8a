// Where a saboteur (cases/saboteurs/*.yaml) stands in a case: in the place of its engine, connector or reader.
#pragma once

#include "case/case.hpp"
#include "case/catalogue/saboteur.hpp"

namespace kvcts::sabotage {

using Saboteur = catalogue::SaboteurEntry;

/// Is there a place in the case that the saboteur could take? Says no also where right code does not end in PASS.
bool fits(const Saboteur& saboteur, const ResolvedCase& resolved);

/// Puts it there. Nothing else of the case changes but how long memory is watched; the checker's diagnosis does not see
/// these places.
void put_into(const Saboteur& saboteur, ResolvedCase& resolved);

/// The same where the case's engine is to stay: one that would take its place stands in front of it
/// (harness/engines/sabotage/front.cpp).
void put_in_front(const Saboteur& saboteur, ResolvedCase& resolved);

}  // namespace kvcts::sabotage
