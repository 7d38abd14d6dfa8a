// Where a fault injector (cases/saboteurs/*.yaml) acts in a case: it replaces the engine, connector or reader.
#pragma once

#include "case/case.hpp"
#include "case/catalogue/fault_injector.hpp"

namespace kvcts::sabotage {

using FaultInjector = catalogue::FaultInjectorEntry;

/// Whether the fault injector has a place in the case. False also if correct code does not end in PASS.
bool fits(const FaultInjector& injector, const ResolvedCase& resolved);

/// Inserts it. Otherwise only the watch time changes; the checker's diagnosis does not see these places.
void put_into(const FaultInjector& injector, ResolvedCase& resolved);

/// The same, but keeps the case's engine: a fault injector that would replace it stands in front of it
/// (harness/engines/sabotage/front.cpp).
void put_proxy_into(const FaultInjector& injector, ResolvedCase& resolved);

}  // namespace kvcts::sabotage
