// One document of cases/saboteurs/: deliberately wrong code under test, as data. `kvcts inject` puts it into cases.
#pragma once

#include "case/catalogue/catalogue.hpp"
#include "case/catalogue/fields.hpp"

namespace kvcts::catalogue {

struct FaultInjectorEntry {
  std::string id;    ///< key `saboteur`: "transport/tail-short-by-one"
  std::string kind;  ///< transport, writer: replaces the engine; connector, planner: the connector; reader
  std::string title;
  json options = json::object();  ///< {fault: ..., ...}: for engine saboteur, or for a misreading
  FaultClass fault_class{};       ///< key `class`: the class that the diagnosis must name
  std::string likely;             ///< axis expression: cases to try first
  std::string only;               ///< axis expression: where the fault injector differs from correct code at all
  bool harmless{false};           ///< a control: correct code that no check may flag
  std::string notes;
};

const Table<FaultInjectorEntry>& fault_injector_table();

/// All of them, in file and document order. Throws Error on a bad file or a duplicate id.
std::vector<FaultInjectorEntry> load_fault_injectors(const Catalogue& catalogue);

}  // namespace kvcts::catalogue
