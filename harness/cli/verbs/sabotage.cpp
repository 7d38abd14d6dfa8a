// kvcts sabotage: how much would this suite catch?
#include <fmt/format.h>

#include <memory>

#include "cli/selection.hpp"
#include "cli/verbs/verbs.hpp"
#include "sabotage/campaign.hpp"
#include "sabotage/page.hpp"

namespace kvcts::cli {
namespace {

using sabotage::Saboteur;

struct SabotageOptions {
  SelectOptions select;
  std::vector<std::string> globs;
  int jobs{1};
  bool list{false};
};

std::vector<Saboteur> chosen_of(const catalogue::Catalogue& catalogue, const std::vector<std::string>& globs) {
  std::vector<Saboteur> chosen;
  for (auto& one : catalogue::load_saboteurs(catalogue)) {
    const auto meant = [&](const std::string& glob) { return catalogue::matches_glob(glob, one.id); };
    if (globs.empty() || std::any_of(globs.begin(), globs.end(), meant)) chosen.push_back(std::move(one));
  }
  return chosen;
}

int sabotage_suite(SabotageOptions options, const Globals& globals) {
  const catalogue::Catalogue catalogue(catalogue::find_cases(globals.cases));
  const std::vector<Saboteur> chosen = chosen_of(catalogue, options.globs);
  if (chosen.empty()) {
    fmt::print(stderr, "kvcts sabotage: nothing selected: no saboteur is called '{}'; `kvcts sabotage --list` has them all\n", fmt::join(options.globs, "' or '"));
    return exit_nothing_selected;
  }
  if (options.list) {
    for (const auto& one : chosen) fmt::print("{:<46} {}\n", one.id, one.title);
    return exit_as_expected;
  }
  auto& select = options.select;
  if (select.suites.empty() && select.ids.empty() && select.files.empty() && select.where.empty()) select.suites = {"smoke"};
  const matrix::Selection selection = matrix::select(catalogue, query_of(select));
  if (selection.empty()) {
    fmt::print(stderr, "kvcts sabotage: nothing selected: {}\n", selection.why_empty());
    return exit_nothing_selected;
  }
  sabotage::CampaignOptions how;
  how.jobs = options.jobs;
  how.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  const auto rows = sabotage::run_campaign(catalogue, selection, chosen, how);
  if (globals.json) fmt::print("{}\n", sabotage::matrix_json(short_name(select), rows).dump(2));
  else fmt::print("{}", sabotage::matrix_text(short_name(select), rows));
  return sabotage::totals_of(rows).good() ? exit_as_expected : exit_unexpected;
}

}  // namespace

Action declare_sabotage(CLI::App& app, const Globals& globals) {
  auto options = std::make_shared<SabotageOptions>();
  declare_selection(app, options->select);
  app.add_option("--saboteur", options->globs, "Only these, by id or glob; any of several")->type_name("GLOB");
  app.add_option("-j,--jobs", options->jobs, "Cases at once")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_flag("--list", options->list, "Only say which saboteurs there are");
  return [=, &globals] { return sabotage_suite(*options, globals); };
}

}  // namespace kvcts::cli
