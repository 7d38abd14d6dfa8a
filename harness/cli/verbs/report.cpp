// kvcts report: the reports of a run, from its store.
#include <memory>

#include "cli/run/run.hpp"
#include "cli/stored.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::report_verb {

Action declare(Command& command, const Globals& globals) {
  auto directory = std::make_shared<std::string>();
  auto out = std::make_shared<std::string>();
  auto compatibility = std::make_shared<bool>(false);
  command.add_option("RUN", *directory, "Folder of a run (finished, killed, or still at work)").required();
  command.add_option("--out", *out, "Write index.html, junit.xml and results.json into this folder").type_name("DIR");
  command.add_flag("--compat", *compatibility,
                   "Write compatibility.md and compatibility.html instead: which producer goes with which consumer");
  auto phases = std::make_shared<bool>(false);
  command.add_flag("--phases", *phases,
                   "Print where the time of cases that passed went, and what telling bytes apart cost of it");
  return [=, &globals] {
    if (*phases && (!out->empty() || *compatibility)) throw UsageError("--phases prints; leave out --out and --compat");
    if (*phases) return print_phases(*directory, globals.json);
    const auto cat = out->empty() || *compatibility ? nullptr : catalogue_if_any(globals, "report");
    return print_run(cat.get(), *directory, *out, *compatibility, globals.json);
  };
}

}  // namespace kvcts::cli::report_verb
