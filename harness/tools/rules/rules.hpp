// Plays rules of engines (cases/rules) against the engines, and says where one has changed.
//
//   const std::vector<RuleEntry> rules = read_rules(cases);
//   Observation seen = play(rules[0], engine);      // two processes of their own, under a deadline
//   bool changed = !as_expected(rules[0], engine.id, seen);
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "case/catalogue/entries.hpp"
#include "case/catalogue/rule_table.hpp"

namespace kvcts::rules {

using catalogue::EngineEntry;
using catalogue::RuleEntry;

/// Every rule of cases/rules, by file and place. Throws catalogue::Error.
std::vector<RuleEntry> read_rules(const std::filesystem::path& cases);

/// Every document of a folder's files, by file and place; ids are unique.
std::vector<RuleEntry> read_entries(const std::filesystem::path& folder, const catalogue::Table<RuleEntry>& table);

struct Observation {
  std::string text;     ///< "load: mismatch; good: backend"; of one answer alone: "pending"
  std::string version;  ///< of the engine, as it tells; "" when it never got so far
  std::string words;    ///< of the last error, for people
  double ms{0};
  std::map<std::string, double> took_ms;  ///< each named step
};

/// What a step may take beyond what is promised: for looking at it, on a machine that has other work, too.
inline constexpr std::int64_t looking_ms = 500;

/// Plays one rule. Never throws for what the engine does: a crash, a call that does not return or a step that had to go well
/// are part of the text ("crash SIGSEGV in step 3 (connect)"). `memory`: stem or file of a provider that brings both sides'
/// memory; "": memory files.
Observation play(const RuleEntry& rule, const EngineEntry& engine, const std::string& memory = "");

/// What was seen is one of the things that are stated. A rule that states nothing about the engine is never as expected.
bool as_expected(const RuleEntry& rule, const std::string& engine, const std::string& seen);

/// The step whose time counts took no longer than the engine promises; true where nothing is promised.
bool in_time(const RuleEntry& rule, const std::string& engine, const Observation& seen);

}  // namespace kvcts::rules
