// Where a saboteur (cases/saboteurs/*.yaml) acts in a case: it replaces the engine, connector or reader.
#pragma once

#include "case/case.hpp"
#include "case/catalogue/saboteur.hpp"

namespace kvcts::sabotage {

using Saboteur = catalogue::SaboteurEntry;

/// Whether the saboteur has a place in the case. False also if correct code does not end in PASS.
bool fits(const Saboteur& saboteur, const ResolvedCase& resolved);

/// Inserts it. Otherwise only the watch time changes; the checker's diagnosis does not see these places.
void put_into(const Saboteur& saboteur, ResolvedCase& resolved);

/// The same, but keeps the case's engine: a saboteur that would replace it stands in front of it
/// (harness/engines/sabotage/front.cpp).
void put_in_front(const Saboteur& saboteur, ResolvedCase& resolved);

}  // namespace kvcts::sabotage
