// kvcts explain --schema: the keys of a kind of file, as JSON Schema or as a Markdown reference, from the tables that parse
// the files.
#include <fmt/format.h>

#include <memory>

#include "case/catalogue/nearest.hpp"
#include "case/catalogue/schema.hpp"
#include "cli/verbs/verbs.hpp"
#include "matrix/axes.hpp"

namespace kvcts::cli::schema_verb {
namespace {

using catalogue::Kind;
using catalogue::kinds;

int show(std::string wanted, bool reference, const Globals& globals) {
  if (wanted.empty() && reference) wanted = "case";  // the longest: what people look for
  if (wanted.empty()) {
    if (globals.json) {
      nlohmann::json names = nlohmann::json::array();
      for (const Kind& k : kinds()) names.push_back(k.name);
      fmt::print("{}\n", names.dump());
    } else {
      for (const Kind& k : kinds()) {
        if (k.folder.empty())
          fmt::print("{:<11} a file of your own, for kvcts certify\n", k.name);
        else
          fmt::print("{:<11} cases/: {}{}\n", k.name, k.folder, k.name == "case" ? " and any file for --file" : "");
      }
      fmt::print("{:<11} what varies between cases, in the order of their ids\n", "axes");
    }
    return exit_as_expected;
  }
  if (wanted == "axes") {
    fmt::print("{}", matrix::axes_reference());
    return exit_as_expected;
  }
  for (const Kind& k : kinds()) {
    if (k.name != wanted) continue;
    fmt::print("{}", reference && !globals.json ? catalogue::reference_text(k) : catalogue::schema_text(k));
    return exit_as_expected;
  }
  std::vector<std::string> names;
  for (const Kind& k : kinds()) names.push_back(k.name);
  throw UsageError(fmt::format("expected a kind of file, found '{}'{}", wanted, catalogue::suggestion(wanted, names)));
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto wanted = std::make_shared<std::string>();
  auto reference = std::make_shared<bool>(false);
  command.add_option("KIND", *wanted,
                     "case, layout, dtype, geometry, backend, arch, connector, engine, constraint, suite, waiver, rule, "
                     "claim, saboteur, profile, product, or axes; without it, list the kinds");
  command.add_flag("--reference", *reference,
                   "Print a Markdown reference instead of the JSON Schema; without KIND, that of cases");
  return [=, &globals] { return show(*wanted, *reference, globals); };
}

}  // namespace kvcts::cli::schema_verb
