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

using sabotage::Saboteur;

struct SabotageOptions {
  SelectOptions select;
  std::vector<std::string> globs;
  std::vector<std::string> behind;
  int jobs{1};
  bool list{false}, harnesses{false};
};

/// What the emulated fills are called, and how a table calls them.
constexpr std::pair<const char*, const char*> other_harnesses[] = {{"benchdnn", "benchdnn"},
                                                                   {"ucx-pattern", "UCX pattern"},
                                                                   {"ucx-random", "UCX random"},
                                                                   {"nvbandwidth", "nvbandwidth"},
                                                                   {"nccl-tests", "nccl-tests"}};
constexpr std::size_t cases_of_others = 8;

std::vector<Saboteur> chosen_of(const catalogue::Catalogue& catalogue, const std::vector<std::string>& globs) {
  std::vector<Saboteur> chosen;
  for (auto& one : catalogue::load_saboteurs(catalogue)) {
    const auto meant = [&](const std::string& glob) { return catalogue::matches_glob(glob, one.id); };
    if (globs.empty() || std::any_of(globs.begin(), globs.end(), meant)) chosen.push_back(std::move(one));
  }
  return chosen;
}

/// A matrix an engine; several of them as a list.
int print_behind(const std::vector<sabotage::Campaigned>& all, bool as_json) {
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
  const std::vector<Saboteur> chosen = chosen_of(catalogue, options.globs);
  if (chosen.empty())
    throw NothingSelected(fmt::format("no injected fault is called '{}'; `kvcts inject --list` has them all",
                                      fmt::join(options.globs, "' or '")));
  if (options.list) {
    for (const auto& one : chosen) fmt::print("{:<46} {}\n", one.id, one.title);
    return exit_as_expected;
  }
  auto& select = options.select;
  const bool selected = !(select.suites.empty() && select.ids.empty() && select.files.empty() && select.where.empty());
  const auto campaign = [&](const SelectOptions& of, const sabotage::CampaignOptions& how) {
    const matrix::Selection selection = matrix::select(catalogue, query_of(of));
    if (selection.empty()) throw NothingSelected(selection.why_empty());
    return sabotage::Campaigned{how.behind.empty() ? short_name(of) : how.behind,
                                sabotage::run_campaign(catalogue, selection, chosen, how)};
  };
  sabotage::CampaignOptions how;
  how.jobs = options.jobs;
  how.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  if (!selected) select.suites = {"smoke"};
  expect_known("--behind expects an engine of cases/engines", options.behind, catalogue.engines().ids());
  if (!options.behind.empty()) {
    std::vector<sabotage::Campaigned> all;
    for (const std::string& engine : options.behind) {
      sabotage::CampaignOptions through = how;
      through.behind = engine;
      all.push_back(campaign(select, through));
    }
    return print_behind(all, globals.json);
  }
  const sabotage::Campaigned ours = campaign(select, how);
  const int status = sabotage::totals_of(ours.rows).good() ? exit_as_expected : exit_unexpected;
  if (!options.harnesses) {
    if (globals.json)
      fmt::print("{}\n", sabotage::matrix_json(ours).dump(2));
    else
      fmt::print("{}", sabotage::matrix_text(ours));
    return status;
  }
  std::vector<sabotage::Campaigned> all{ours};
  all[0].name = "KV-CTS";
  for (const auto& [harness, shown] : other_harnesses) {
    sabotage::CampaignOptions other = how;
    other.harness = harness, other.most = cases_of_others, other.stop = false,
    other.skip = sabotage::places_of_catches(ours.rows);
    all.push_back(campaign(select, other));
    all.back().name = shown;
  }
  if (globals.json)
    fmt::print("{}\n", sabotage::harnesses_json(all).dump(2));
  else
    fmt::print("{}", sabotage::harnesses_text(all));
  return status;
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
  command.add_flag("--harnesses", options->harnesses,
                   "Compare with the fills and checks of benchdnn, UCX, nvbandwidth and nccl-tests");
  return [=, &globals] { return run(*options, globals); };
}

}  // namespace kvcts::cli::sabotage_verb
