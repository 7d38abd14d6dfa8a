// kvcts conformance --rules: tests the rules of engines and reports which have changed.
#include "tools/rules/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "case/catalogue/catalogue.hpp"
#include "cli/availability.hpp"
#include "cli/child_query.hpp"
#include "cli/names.hpp"
#include "cli/report/text.hpp"
#include "cli/verbs/verbs.hpp"
#include "process/grants.hpp"

namespace kvcts::cli::rules_verb {
namespace {

using rules::EngineEntry;
using rules::RuleEntry;

struct Options {
  std::vector<std::string> rules, engines;
  int runs{1};
  bool list{false};
};

struct RuleResult {
  std::map<std::string, int> seen;  ///< answer -> how often
  std::string version, words, skipped;
  double ms{0};
  std::vector<double> took_ms;  ///< of the step whose time counts, each run
  bool in_time{true};
};

RuleResult run_rule(const RuleEntry& rule, const EngineEntry& engine, int runs, Availability& availability) {
  RuleResult result;
  if (const auto& lack = availability.lack(engine.id)) {
    result.skipped = lack->reason;
    return result;
  }
  for (int run = 0; run < runs; ++run) {
    const rules::RuleObservation one = rules::run_rule(rule, engine);
    ++result.seen[one.text];
    result.version = one.version;
    if (!one.words.empty()) result.words = one.words;
    result.ms += one.ms / runs;
    if (const auto took = one.took_ms.find(rule.timed); took != one.took_ms.end()) result.took_ms.push_back(took->second);
    result.in_time = result.in_time && rules::in_time(rule, engine.id, one);
  }
  return result;
}

std::string_view verdict(const RuleEntry& rule, const EngineEntry& engine, const RuleResult& result) {
  if (!result.skipped.empty()) return "SKIPPED";
  if (!rule.expect.contains(engine.id)) return "not stated";
  const bool good = std::all_of(result.seen.begin(), result.seen.end(),
                                [&](const auto& one) { return rules::as_expected(rule, engine.id, one.first); });
  return good && result.in_time ? "as stated" : "CHANGED RULE";
}

/// What is stated, without playing it.
int list(const std::vector<RuleEntry>& all, const Globals& globals) {
  nlohmann::json out = nlohmann::json::array();
  for (const RuleEntry& rule : all) {
    out.push_back({{"rule", rule.id},
                   {"title", rule.title},
                   {"once", rule.once},
                   {"expect", rule.expect},
                   {"promised_ms", rule.promised_ms}});
    if (!globals.json) fmt::print("{:<34} {}\n", rule.id, rule.title);
  }
  if (globals.json) fmt::print("{}\n", out.dump(2));
  return exit_as_expected;
}

/// Throws UsageError if a rule states something about an engine that is not in the catalogue.
void expect_engines(const std::vector<RuleEntry>& all, const catalogue::Catalogue& cat) {
  for (const RuleEntry& rule : all) {
    const auto known = [&](const auto& by_engine, const char* does) {
      for (const auto& [engine, stated] : by_engine) {
        if (!cat.engines().find(engine))
          throw UsageError(fmt::format("{}: rule {} {} something of engine '{}', which is not in cases/engines", rule.file,
                                       rule.id, does, engine));
      }
    };
    known(rule.expect, "expects"), known(rule.promised_ms, "has a promise of");
  }
}

nlohmann::json play_json(const RuleEntry& rule, const EngineEntry& engine, const RuleResult& result) {
  const auto stated = rule.expect.find(engine.id);
  return {{"rule", rule.id},           {"engine", engine.id},
          {"version", result.version}, {"verdict", verdict(rule, engine, result)},
          {"seen", result.seen},       {"stated", stated != rule.expect.end() ? stated->second : std::vector<std::string>{}},
          {"words", result.words},     {"skipped", result.skipped},
          {"ms", result.ms},           {"took_ms", result.took_ms},
          {"in_time", result.in_time}};
}

void print_rule_run(const RuleEntry& rule, const EngineEntry& engine, const RuleResult& result, int runs) {
  const auto how = verdict(rule, engine, result);
  std::string text = result.skipped;
  for (const auto& [seen, times] : result.seen)
    text += (text.empty() ? "" : " | ") + seen + (runs > 1 ? fmt::format(" ({} of {})", times, runs) : "");
  fmt::print("  {:<16} {:<8} {:<12} {}\n", engine.id, report::visible(result.version), how, report::visible(text));
  if (how == "CHANGED RULE") fmt::print("  {:<38} stated: {}\n", "", fmt::join(rule.expect.at(engine.id), " | "));
  if (!result.in_time)
    fmt::print("  {:<38} {} took {:.1f} s, promised are {:.1f} s\n", "", rule.timed,
               *std::max_element(result.took_ms.begin(), result.took_ms.end()) / 1e3,
               static_cast<double>(rule.promised_ms.at(engine.id)) / 1e3);
  if ((how == "CHANGED RULE" || how == "not stated") && !result.words.empty())
    fmt::print("  {:<38} {}\n", "", report::visible(result.words));
  std::fflush(stdout);
}

int show(const Options& options, const Globals& globals) {
  if (const auto status = inside(process::grant_names())) return *status;
  const auto cases = catalogue::find_cases(globals.cases);
  const catalogue::Catalogue cat(cases);
  std::vector<RuleEntry> chosen = rules::read_rules(cases);
  std::vector<EngineEntry> engines;
  for (const auto& [id, engine] : cat.engines()) engines.push_back(engine);
  expect_engines(chosen, cat);
  if (options.list) return list(chosen, globals);
  narrow(chosen, chosen, options.rules, "expected a rule", [](const RuleEntry& rule) { return rule.id; });
  narrow(engines, engines, options.engines, "expected --engine to name one",
         [](const EngineEntry& engine) { return engine.id; });
  Availability availability(cat);
  nlohmann::json out = nlohmann::json::array();
  std::map<std::string_view, int> sums;
  for (const RuleEntry& rule : chosen) {
    bool titled = false;
    for (const EngineEntry& engine : engines) {
      // Without --engine: those that the rule states something about.
      if (options.engines.empty() && !rule.expect.contains(engine.id)) continue;
      const RuleResult result = run_rule(rule, engine, options.runs, availability);
      ++sums[verdict(rule, engine, result)];
      if (globals.json) {
        out.push_back(play_json(rule, engine, result));
        continue;
      }
      if (!titled) fmt::print("{}: {}\n", rule.id, rule.title);
      titled = true;
      print_rule_run(rule, engine, result, options.runs);
    }
  }
  if (globals.json) {
    fmt::print("{}\n", out.dump(2));
  } else {
    std::string text;
    for (const auto& [how, count] : sums) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, how);
    fmt::print("{}\n", text.empty() ? "no answers are recorded for this selection" : text);
  }
  if (sums.empty()) return exit_nothing_selected;
  if (sums.contains("CHANGED RULE")) return exit_unexpected;
  return sums.size() == 1 && sums.contains("SKIPPED") ? exit_incomplete
                                                      : exit_as_expected;  // without any engine nothing was played
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto options = std::make_shared<Options>();
  command.add_option("RULE", options->rules, "Ids of rules; without any, all");
  command.add_option("--engine", options->engines, "Test only this engine, even if no answer is recorded for it; repeatable")
      .type_name("ENGINE")
      .repeatable();
  command.add_option("--runs", options->runs, "Number of times to test each").type_name("N").range(1, 1000);
  command.add_flag("--list", options->list, "Only list the rules");
  return [options, &globals] { return show(*options, globals); };
}

}  // namespace kvcts::cli::rules_verb
