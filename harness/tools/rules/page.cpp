#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "engines/transport/packages.hpp"
#include "tools/rules/rules.hpp"

namespace kvcts::rules {
namespace {

std::string cell(const RuleEntry& rule, const std::string& engine) {
  const auto stated = rule.expect.find(engine);
  return stated == rule.expect.end() ? "" : fmt::format("{}", fmt::join(stated->second, " *or* "));
}

std::string words(const std::string& text) { return text.empty() ? "" : text + "\n"; }

}  // namespace

std::string page(const std::vector<RuleEntry>& rules, const std::vector<EngineEntry>& engines) {
  std::string out =
      "# What may be relied on, and where\n\n"
      "Rules of engines at the edges of what they promise: what each answers, as it was measured through the transport ABI, "
      "with the plug-ins' own\n"
      "checks off where they have any. `kvcts rules` plays them again and says CHANGED RULE where an engine answers "
      "otherwise than stated in\n"
      "`cases/rules`; `kvcts rules --page` prints this page. Answers are those of the ABI "
      "(`harness/engines/transport/kvcts_transport.h`); *pending*: neither done nor\n"
      "failed when the time was over; *arrived*, *untouched*, *partly*: the bytes at their destination. Several answers: "
      "which one it is depends\n"
      "on timing. One rule with one engine, to show somebody: `kvcts rules truncated-blob --engine nixl-tcp`. How often "
      "each answer came in many\n"
      "runs, and how long an error took: [reproduction](reproduction.md).\n\n";
  std::vector<const RuleEntry*> unlike;
  for (const RuleEntry& rule : rules) {
    std::set<std::string> answers;
    for (const auto& [engine, stated] : rule.expect) answers.insert(cell(rule, engine));
    if (answers.size() > 1) unlike.push_back(&rule);
  }
  out += fmt::format("{} rules, {} engines; {} rules differ between engines or versions: a connector must not rely on these.\n", rules.size(),
                     std::count_if(engines.begin(), engines.end(), [&](const EngineEntry& e) {
                       return std::any_of(rules.begin(), rules.end(), [&](const RuleEntry& r) { return r.expect.contains(e.id); });
                     }),
                     unlike.size());
  for (const RuleEntry* rule : unlike) out += fmt::format("- [{}](#{})\n", rule->title, rule->id);
  for (const RuleEntry& rule : rules) {
    out += fmt::format("\n## {}\n\n{}{}\n\n| engine | version | what is seen |\n| --- | --- | --- |\n", rule.id, rule.title,
                       rule.known_as.empty() ? "" : " (" + rule.known_as + ")");
    for (const EngineEntry& engine : engines) {
      if (!rule.expect.contains(engine.id)) continue;
      const std::string package = engine.environment.value(transport::package_variable, "");
      out +=
          fmt::format("| `{}` | {} | {} |\n", engine.id, package.empty() ? "as installed" : package, cell(rule, engine.id));
    }
    if (!rule.promised_ms.empty()) {
      std::map<std::int64_t, std::vector<std::string>> by_time;
      for (const auto& [engine, ms] : rule.promised_ms) {
        if (rule.expect.contains(engine)) by_time[ms].push_back("`" + engine + "`");
      }
      std::string times;
      for (const auto& [ms, who] : by_time)
        times +=
            fmt::format("{}{} s for {}", times.empty() ? "" : ", ", static_cast<double>(ms) / 1e3, fmt::join(who, ", "));
      out += fmt::format("\nThe step `{}` takes at most {}. {}\n", rule.timed, times, rule.promise);
    }
    if (!rule.explain.empty()) out += "\n" + words(rule.explain);
    if (!rule.advice.empty()) out += "\n**For connectors:** " + words(rule.advice);
  }
  return out;
}

}  // namespace kvcts::rules
