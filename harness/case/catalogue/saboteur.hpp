// One document of cases/saboteurs/: code under test that is wrong on purpose, as data. `kvcts inject` puts it into cases.
#pragma once

#include "case/catalogue/catalogue.hpp"
#include "case/catalogue/fields.hpp"

namespace kvcts::catalogue {

struct SaboteurEntry {
  std::string id;    ///< key `saboteur`: "transport/tail-short-by-one"
  std::string kind;  ///< transport, writer: in the engine's place; connector, planner: the connector's; reader
  std::string title;
  json options = json::object();  ///< {fault: ..., ...}: of engine saboteur, or of a misreading
  std::string fault_class;        ///< key `class`: what the diagnosis has to call it
  std::string likely;             ///< axis expression: cases to try first
  std::string only;               ///< axis expression: where the saboteur differs from right code at all
  bool harmless{false};           ///< a control: right code, must not be caught
  std::string notes;
};

const Table<SaboteurEntry>& saboteur_table();

/// All of them, in the order of files and documents. Throws Error on a bad file or an id that occurs twice.
std::vector<SaboteurEntry> load_saboteurs(const Catalogue& catalogue);

}  // namespace kvcts::catalogue
