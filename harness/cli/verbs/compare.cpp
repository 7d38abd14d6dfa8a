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

int show(const std::string& before, const std::string& after, bool any_change, const Globals& globals) {
  return opening([&] {
    const auto one = store::RunReader::open(before), other = store::RunReader::open(after);
    const report::Comparison found = report::compare(one, other);
    if (globals.json)
      fmt::print("{}\n", report::to_json(found).dump(2));
    else
      report::print_comparison(std::cout, found, report::repro_from_json(found.after.repro));
    std::cout.flush();
    const bool failing = found.of(Change::newly_failing) + found.of(Change::newly_flaky) + found.of(Change::other_cause) > 0;
    return failing || (any_change && (!found.changes.empty() || !found.slower.empty())) ? exit_unexpected : exit_as_expected;
  });
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto before = std::make_shared<std::string>(), after = std::make_shared<std::string>(),
       policy = std::make_shared<std::string>("new-failures");
  command.add_option("BEFORE", *before, "Folder of the earlier run").required();
  command.add_option("AFTER", *after, "Folder of the later run").required();
  command.add_option("--policy", *policy, "What exits with 1: a new failure or a new cause, or any change")
      .one_of({"new-failures", "any-change"})
      .show_default();
  return [=, &globals] { return show(*before, *after, *policy == "any-change", globals); };
}

}  // namespace kvcts::cli::compare_verb
