// kvcts sabotage: how much would this suite catch?
#include <fmt/format.h>

#include <memory>

#include "catalogue/nearest.hpp"
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
  std::string behind;
  int jobs{1};
  bool list{false}, harnesses{false}, page{false};
};

/// What the emulated fills are called, and how a table calls them.
constexpr std::pair<const char*, const char*> other_harnesses[] = {
    {"benchdnn", "benchdnn"}, {"ucx-pattern", "UCX pattern"}, {"ucx-random", "UCX random"}, {"nvbandwidth", "nvbandwidth"}, {"nccl-tests", "nccl-tests"}};
constexpr std::size_t cases_of_others = 8;
/// Engines of the page's table of carried plans.
constexpr const char* carriers[] = {"nixl-tcp", "mooncake", "ucx-1.22-cma", "ucx-tcp", "nixl-1.2-cma"};

std::vector<Saboteur> chosen_of(const catalogue::Catalogue& catalogue, const std::vector<std::string>& globs) {
  std::vector<Saboteur> chosen;
  for (auto& one : catalogue::load_saboteurs(catalogue)) {
    const auto meant = [&](const std::string& glob) { return catalogue::matches_glob(glob, one.id); };
    if (globs.empty() || std::any_of(globs.begin(), globs.end(), meant)) chosen.push_back(std::move(one));
  }
  return chosen;
}

struct NothingSelected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int run(SabotageOptions options, const Globals& globals) {
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
  const bool selected = !(select.suites.empty() && select.ids.empty() && select.files.empty() && select.where.empty());
  if (options.page && selected) throw UsageError("--page is about suites smoke and nightly; leave out the selection");
  const auto campaign = [&](const SelectOptions& of, const sabotage::CampaignOptions& how) {
    const matrix::Selection selection = matrix::select(catalogue, query_of(of));
    if (selection.empty()) throw NothingSelected(selection.why_empty());
    if (how.behind.empty())
      return sabotage::Campaigned{short_name(of), sabotage::run_campaign(catalogue, selection, chosen, how)};
    std::vector<Saboteur> plans = chosen;
    std::erase_if(plans, [](const Saboteur& one) { return !sabotage::sends_a_plan(one); });
    return sabotage::Campaigned{how.behind, sabotage::run_campaign(catalogue, selection, plans, how)};
  };
  sabotage::CampaignOptions how;
  how.jobs = options.jobs;
  how.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  if (!selected) select.suites = {"smoke"};
  if (!options.behind.empty() && !catalogue.engines().find(options.behind)) {
    throw UsageError(fmt::format("--behind expects an engine of cases/engines, found '{}'{}", options.behind,
                                 catalogue::suggestion(options.behind, catalogue.engines().ids())));
  }
  const auto carried_by = [&](const std::string& engine) {
    sabotage::CampaignOptions through = how;
    through.behind = engine;
    return campaign(select, through);
  };
  if (!options.behind.empty() && !options.page) {
    const sabotage::Campaigned carried = carried_by(options.behind);
    if (globals.json)
      fmt::print("{}\n", sabotage::matrix_json(carried).dump(2));
    else
      fmt::print("{}", sabotage::matrix_text(carried));
    return sabotage::totals_of(carried.rows).good() ? exit_as_expected : exit_unexpected;
  }
  const sabotage::Campaigned ours = campaign(select, how);
  const int status = sabotage::totals_of(ours.rows).good() ? exit_as_expected : exit_unexpected;
  if (options.page && !options.behind.empty()) {
    fmt::print("{}", sabotage::behind_row(ours, carried_by(options.behind)));
    return status;
  }
  if (options.page && !options.globs.empty()) {
    fmt::print("{}", sabotage::page_rows(ours));
    return status;
  }
  if (!options.harnesses && !options.page) {
    if (globals.json) fmt::print("{}\n", sabotage::matrix_json(ours).dump(2));
    else fmt::print("{}", sabotage::matrix_text(ours));
    return status;
  }
  std::vector<sabotage::Campaigned> all{ours};
  all[0].name = "KV-CTS";
  for (const auto& [harness, shown] : other_harnesses) {
    sabotage::CampaignOptions other = how;
    other.harness = harness, other.most = cases_of_others, other.stop = false, other.skip = sabotage::places_of_catches(ours.rows);
    all.push_back(campaign(select, other));
    all.back().name = shown;
  }
  if (!options.page) {
    if (globals.json) fmt::print("{}\n", sabotage::harnesses_json(all).dump(2));
    else fmt::print("{}", sabotage::harnesses_text(all));
    return status;
  }
  SelectOptions nightly;
  nightly.suites = {"nightly"};
  const sabotage::Campaigned every = campaign(nightly, how);
  std::vector<sabotage::Campaigned> carried;
  for (const char* engine : carriers) carried.push_back(carried_by(engine));
  fmt::print("{}", sabotage::page({ours, every}, all, carried));
  return sabotage::totals_of(every.rows).good() ? status : exit_unexpected;
}

}  // namespace

Action declare_sabotage(CLI::App& app, const Globals& globals) {
  auto options = std::make_shared<SabotageOptions>();
  declare_selection(app, options->select);
  app.add_option("--saboteur", options->globs, "Only these, by id or glob; any of several")->type_name("GLOB");
  app.add_option("--behind", options->behind,
                 "Wrong plans of connectors and planners are carried by this engine, in the place of the case's own")
      ->type_name("ENGINE");
  app.add_option("-j,--jobs", options->jobs, "Cases at once")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_flag("--list", options->list, "Only say which saboteurs there are");
  app.add_flag("--harnesses", options->harnesses,
               "The same saboteurs against the fills and checks of benchdnn, UCX, nvbandwidth and nccl-tests");
  app.add_flag("--page", options->page,
               "reports/sabotage.md: suites smoke and nightly, and those harnesses; with --saboteur only rows of its first "
               "table, with --behind a row of its table of engines");
  return [=, &globals] {
    try {
      return run(*options, globals);
    } catch (const NothingSelected& why) {
      fmt::print(stderr, "kvcts sabotage: nothing selected: {}\n", why.what());
      return static_cast<int>(exit_nothing_selected);
    }
  };
}

}  // namespace kvcts::cli
