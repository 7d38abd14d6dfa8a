// Plays the rules of engines (cases/rules) against the engines and reports which engines have changed.
//
//   const std::vector<RuleEntry> rules = read_rules(cases);
//   Observation seen = play(rules[0], engine);      // two separate processes, under a deadline
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

struct RuleObservation {
  std::string text;     ///< "load: mismatch; good: backend"; with a single answer: "pending"
  std::string version;  ///< as the engine reports it; "" if it never got that far
  std::string words;    ///< of the last error, for people
  double ms{0};
  std::map<std::string, double> took_ms;  ///< each named step
};

/// Allowance beyond a promised time: for observing the step, and for a busy machine.
inline constexpr std::int64_t looking_ms = 500;

/// Plays one rule. Never throws because of the engine: a crash, a call that does not return or a failed step that had
/// to succeed becomes part of the text ("crash SIGSEGV in step 3 (connect)"). `memory`: stem or file of a provider
/// for both sides' memory; "": memory files.
RuleObservation run_rule(const RuleEntry& rule, const EngineEntry& engine, const std::string& memory = "");

/// Whether the observation is one of the stated ones. A rule that states nothing about the engine is never as expected.
bool as_expected(const RuleEntry& rule, const std::string& engine, const std::string& seen);

/// Whether the timed step was as fast as the engine promises; true if it promises nothing.
bool in_time(const RuleEntry& rule, const std::string& engine, const RuleObservation& seen);

}  // namespace kvcts::rules
