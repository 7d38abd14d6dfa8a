// kvcts compare: new, fixed, vanished or slower cases between two runs.
#include "cli/report/compare.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "cli/stored.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::compare_verb {
namespace {

using report::Change;

int show(const std::string& before, const std::string& after, const std::vector<std::string>& maps, bool any_change,
         const Globals& globals) {
  return opening([&] {
    std::vector<report::Mapping> mapped;
    for (const std::string& text : maps) mapped.push_back(report::mapping_from_text(text));
    const auto one = store::RunReader::open(before), other = store::RunReader::open(after);
    const report::Comparison found = report::compare(one, other, std::move(mapped));
    if (globals.json)
      fmt::print("{}\n", report::to_json(found).dump(2));
    else
      report::print_comparison(std::cout, found, report::repro_from_json(found.after.repro));
    std::cout.flush();
    const bool failing =
        found.of(Change::newly_failing) + found.of(Change::newly_flaky) + found.of(Change::other_cause) + found.lost > 0;
    return failing || (any_change && (!found.changes.empty() || !found.slower.empty())) ? exit_unexpected : exit_as_expected;
  });
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto before = std::make_shared<std::string>(), after = std::make_shared<std::string>(),
       policy = std::make_shared<std::string>("new-failures");
  auto maps = std::make_shared<std::vector<std::string>>();
  command.add_option("BEFORE", *before, "Folder of the earlier run").required();
  command.add_option("AFTER", *after, "Folder of the later run").required();
  command
      .add_option(
          "--map", *maps,
          "Compare cases of BEFORE that have one value of an axis with those of AFTER that have another one; engines "
          "and connectors that took another's place are seen without it")
      .type_name("AXIS=BEFORE:AFTER");
  command
      .add_option(
          "--policy", *policy,
          "What exits with 1: a new failure, a new cause, or what is not run although no suite lists it as optional; or "
          "any change")
      .one_of({"new-failures", "any-change"})
      .show_default();
  return [=, &globals] { return show(*before, *after, *maps, *policy == "any-change", globals); };
}

}  // namespace kvcts::cli::compare_verb
