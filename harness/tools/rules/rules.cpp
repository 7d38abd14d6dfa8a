#include "tools/rules/rules.hpp"

#include <algorithm>

namespace kvcts::rules {

namespace fs = std::filesystem;
using catalogue::RuleStep;

std::vector<RuleEntry> read_rules(const fs::path& cases) {
  std::vector<RuleEntry> rules = read_entries(cases / "rules", catalogue::rule_table());
  for (const RuleEntry& rule : rules) {
    const auto timed = [&](const RuleStep& step) { return !step.as.empty() && step.as == rule.timed; };
    if (rule.promised_ms.empty() || std::any_of(rule.steps.begin(), rule.steps.end(), timed)) continue;
    throw catalogue::Error(rule.file + ": rule " + rule.id +
                           ": expected 'timed' to name one of its steps where something is promised, found '" + rule.timed +
                           "'");
  }
  return rules;
}

std::vector<RuleEntry> read_entries(const fs::path& folder, const catalogue::Table<RuleEntry>& table) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<RuleEntry> rules;
  for (const fs::path& file : files) {
    const std::string shown = folder.filename().string() + "/" + file.filename().string();
    for (const auto& document : catalogue::parse_yaml_file(file, shown)) {
      RuleEntry rule = catalogue::read(table, document);
      rule.file = shown;
      const auto same = [&](const RuleEntry& other) { return other.id == rule.id; };
      if (std::any_of(rules.begin(), rules.end(), same)) {
        throw catalogue::Error(document.where() + ": expected a new id, found '" + rule.id + "' again; rename one");
      }
      rules.push_back(std::move(rule));
    }
  }
  return rules;
}

bool as_expected(const RuleEntry& rule, const std::string& engine, const std::string& seen) {
  const auto stated = rule.expect.find(engine);
  return stated != rule.expect.end() &&
         std::find(stated->second.begin(), stated->second.end(), seen) != stated->second.end();
}

bool in_time(const RuleEntry& rule, const std::string& engine, const RuleObservation& seen) {
  const auto promised = rule.promised_ms.find(engine);
  const auto took = seen.took_ms.find(rule.timed);
  if (promised == rule.promised_ms.end() || took == seen.took_ms.end()) return true;
  return took->second <= static_cast<double>(promised->second + looking_ms);
}

}  // namespace kvcts::rules
