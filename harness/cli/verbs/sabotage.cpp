// kvcts inject: measures how many injected faults a suite catches.
#include <fmt/format.h>

#include <memory>

#include "cli/names.hpp"
#include "cli/selection.hpp"
#include "cli/verbs/verbs.hpp"
#include "tools/sabotage/campaign.hpp"
#include "tools/sabotage/matrix.hpp"

namespace kvcts::cli::sabotage_verb {
namespace {

using sabotage::FaultInjector;

struct SabotageOptions {
  SelectOptions select;
  std::vector<std::string> globs;
  std::vector<std::string> behind;
  int jobs{1};
  bool list{false};
};

std::vector<FaultInjector> chosen_of(const catalogue::Catalogue& catalogue, const std::vector<std::string>& globs) {
  std::vector<FaultInjector> chosen;
  for (auto& one : catalogue::load_fault_injectors(catalogue)) {
    const auto meant = [&](const std::string& glob) { return catalogue::matches_glob(glob, one.id); };
    if (globs.empty() || std::any_of(globs.begin(), globs.end(), meant)) chosen.push_back(std::move(one));
  }
  return chosen;
}

/// One matrix per engine; several of them as a list.
int print(const std::vector<sabotage::Campaigned>& all, bool as_json) {
  bool good = true;
  nlohmann::json list = nlohmann::json::array();
  for (const auto& one : all) {
    good = sabotage::totals_of(one.rows).good() && good;
    list.push_back(sabotage::matrix_json(one));
    if (!as_json) fmt::print("{}{}", all.size() > 1 && &one != &all[0] ? "\n" : "", sabotage::matrix_text(one));
  }
  if (as_json) fmt::print("{}\n", (all.size() == 1 ? list[0] : nlohmann::json{{"behind", list}}).dump(2));
  return good ? exit_as_expected : exit_unexpected;
}

int run(SabotageOptions options, const Globals& globals) {
  const catalogue::Catalogue catalogue(catalogue::find_cases(globals.cases));
  const std::vector<FaultInjector> chosen = chosen_of(catalogue, options.globs);
  if (chosen.empty())
    throw NothingSelected(fmt::format("no injected fault is called '{}'; `kvcts inject --list` has them all",
                                      fmt::join(options.globs, "' or '")));
  if (options.list) {
    for (const auto& one : chosen) fmt::print("{:<46} {}\n", one.id, one.title);
    return exit_as_expected;
  }
  auto& select = options.select;
  const bool selected = !(select.suites.empty() && select.ids.empty() && select.files.empty() && select.where.empty() &&
                          select.failed.empty());
  const auto campaign = [&](const SelectOptions& of, const sabotage::CampaignOptions& how) {
    const matrix::Selection selection = matrix::select(catalogue, query_of(of));
    if (selection.empty()) throw NothingSelected(selection.why_empty());
    return sabotage::Campaigned{how.behind.empty() ? short_name(of) : how.behind,
                                sabotage::run_campaign(catalogue, selection, chosen, how)};
  };
  sabotage::CampaignOptions how;
  how.jobs = options.jobs;
  how.log = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  if (!selected) select.suites = {"smoke"};
  expect_known("--behind expects an engine of cases/engines", options.behind, catalogue.engines().ids());
  std::vector<sabotage::Campaigned> all;
  if (options.behind.empty()) all.push_back(campaign(select, how));
  for (const std::string& engine : options.behind) {
    how.behind = engine;
    all.push_back(campaign(select, how));
  }
  return print(all, globals.json);
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto options = std::make_shared<SabotageOptions>();
  declare_selection(command, options->select);
  command.add_option("--fault,--saboteur", options->globs, "Inject only these, by id or glob; repeatable").type_name("GLOB");
  command
      .add_option("--behind", options->behind,
                  "Use this engine instead of the case's own, with engine faults injected in front of it; repeatable")
      .type_name("ENGINE");
  command.add_option("-j,--jobs", options->jobs, "Number of cases to run in parallel").range(1, 256).show_default();
  command.add_flag("--list", options->list, "Only list the injected faults");
  return [=, &globals] { return run(*options, globals); };
}

}  // namespace kvcts::cli::sabotage_verb
