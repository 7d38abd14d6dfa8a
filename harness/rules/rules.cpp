#include "rules/rules.hpp"

#include <algorithm>

namespace kvcts::rules {

namespace fs = std::filesystem;

std::vector<RuleEntry> read_rules(const fs::path& cases) { return read_entries(cases / "rules", catalogue::rule_table()); }

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
  return stated != rule.expect.end() && std::find(stated->second.begin(), stated->second.end(), seen) != stated->second.end();
}

}  // namespace kvcts::rules
