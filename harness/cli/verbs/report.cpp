// kvcts report: the reports of a run, from its store.
#include <memory>

#include "cli/run/run.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli {

Action declare_report(CLI::App& app, const Globals& globals) {
  auto directory = std::make_shared<std::string>();
  auto out = std::make_shared<std::string>();
  app.add_option("RUN", *directory, "Folder of a run (finished, killed, or still at work)")->required();
  app.add_option("--out", *out, "Write index.html, junit.xml and results.json into this folder")->type_name("DIR");
  return [=, &globals] { return print_run(*directory, *out, globals.json); };
}

}  // namespace kvcts::cli
