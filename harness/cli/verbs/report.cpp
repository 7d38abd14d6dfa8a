// kvcts report: writes the reports of a run from its store.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "cli/report/by_link.hpp"
#include "cli/report/ci.hpp"
#include "cli/run/run.hpp"
#include "cli/stored.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::report_verb {
namespace {

int print_for(const std::string& directory, const std::string& system) {
  return opening([&] {
    const report::RunView view = report::load(store::RunReader::open(directory));
    if (system == "openmetrics") {
      fmt::print("{}", report::openmetrics(view));
    } else if (system == "markdown") {
      fmt::print("{}", report::summary_markdown(view));
    } else {
      fmt::print("{}", report::github_annotations(view));
      if (const char* summary = std::getenv("GITHUB_STEP_SUMMARY"); summary != nullptr && *summary != 0) {
        std::ofstream file(summary, std::ios::app);
        file << report::summary_markdown(view);
        if (!file.flush()) throw UsageError(fmt::format("$GITHUB_STEP_SUMMARY: {} cannot be written", summary));
      }
    }
    return view.exit_status;
  });
}

int print_by_link(const std::string& directory, bool json) {
  return opening([&] {
    const auto reader = store::RunReader::open(directory);
    const std::string text = report::by_link(reader, json);
    if (text.empty()) {
      throw UsageError(
          fmt::format("expected a run with cases that link a report, found none in {}; `kvcts run --suite museum` makes one",
                      directory));
    }
    fmt::print("{}", text);
    return report::load(reader).exit_status;
  });
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto directory = std::make_shared<std::string>();
  auto out = std::make_shared<std::string>();
  auto since = std::make_shared<std::string>();
  command.add_option("--since", *since, "With --out: add to index.html what changed since this earlier run")
      .type_name("RUN");
  auto history = std::make_shared<std::string>();
  command
      .add_option("--history", *history,
                  "With --out: add to index.html the nights before, from this file of `kvcts history`")
      .type_name("FILE");
  auto compatibility = std::make_shared<bool>(false);
  command.add_option("RUN", *directory, "Folder of a run, which may be finished, killed or still running").required();
  command.add_option("--out", *out, "Write index.html, junit.xml and results.json into this folder").type_name("DIR");
  command.add_flag("--compat", *compatibility, "Write compatibility.md instead: which producers work with which consumers");
  auto phases = std::make_shared<bool>(false);
  command.add_flag("--phases", *phases,
                   "Print how the time of passing cases divides into phases, and the share of checking");
  auto wanted = std::make_shared<std::string>();
  command
      .add_option(
          "--for", *wanted,
          "Print for a CI system: github (annotations; appends a summary to $GITHUB_STEP_SUMMARY), markdown or openmetrics")
      .one_of({"github", "markdown", "openmetrics"});
  auto by = std::make_shared<std::string>();
  command
      .add_option(
          "--by", *by,
          "Print how each case and its controls ended, grouped by link: the report of the bug that the case expresses")
      .one_of({"link"});
  return [=, &globals] {
    if (!by->empty() && (*phases || !out->empty() || *compatibility || !wanted->empty()))
      throw UsageError("--by prints one thing; leave out --out, --compat, --phases and --for");
    if (!wanted->empty()) {
      if (*phases || !out->empty() || *compatibility || globals.json)
        throw UsageError("--for prints one thing; leave out --out, --compat, --phases and --json");
      return print_for(*directory, *wanted);
    }
    if (*phases && (!out->empty() || *compatibility)) throw UsageError("--phases prints; leave out --out and --compat");
    if (!since->empty() && (out->empty() || *compatibility))
      throw UsageError("--since is for the page that --out DIR writes; `kvcts compare BEFORE AFTER` prints");
    if (!history->empty() && (out->empty() || *compatibility))
      throw UsageError("--history is for the page that --out DIR writes; `kvcts history show` prints");
    if (!by->empty()) return print_by_link(*directory, globals.json);
    if (*phases) return print_phases(*directory, globals.json);
    const auto cat = out->empty() || *compatibility ? nullptr : catalogue_if_any(globals, "report");
    return print_run(cat.get(), *directory, *out, {*since, *history}, *compatibility, globals.json);
  };
}

}  // namespace kvcts::cli::report_verb
