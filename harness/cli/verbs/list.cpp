// kvcts list: the cases of a selection, one id per line.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/product.hpp"
#include "cli/selection.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::list_verb {
namespace {

using matrix::CoverReport;
using matrix::Selection;

nlohmann::json cover_json(const Selection& s, const std::string& title, const CoverReport& c) {
  nlohmann::json excluded = nlohmann::json::array();
  for (const auto& e : c.excluded)
    excluded.push_back({{"tuple", matrix::to_text(s.space(), e.tuple)}, {"constraint", e.constraint}});
  return {{"title", title},     {"strength", c.strength},   {"points", c.points},
          {"tuples", c.tuples}, {"undecided", c.undecided}, {"excluded", excluded}};
}

void print_cover(const Selection& s, const std::string& title, const CoverReport& c) {
  fmt::print("# {}: every combination of {} values that can run is covered: {} in {} cases; {} excluded by constraints{}\n",
             title, c.strength, c.tuples, c.points, c.excluded.size(),
             c.undecided == 0 ? "" : fmt::format("; {} undecided", c.undecided));
  for (const auto& e : c.excluded) fmt::print("#   excluded: {} ({})\n", matrix::to_text(s.space(), e.tuple), e.constraint);
}

void print_json(const Selection& s) {
  // Written case by case: a million of them need no tree in memory.
  fmt::print("{{\"considered\": {}, \"left_out\": {}, \"cases\": [", s.considered(), s.left_out());
  for (std::size_t i = 0; i < s.size(); ++i) {
    nlohmann::json one{{"id", s.id(i)}, {"suite", s.suite(i)}, {"seconds", s.seconds(i)}, {"facts", s.facts(i)}};
    if (const auto d = s.declared(i))
      one["declared"] = {{"outcome", name(d->outcome)}, {"constraint", d->constraint}, {"reason", d->reason}};
    fmt::print("{}{}", i == 0 ? "\n" : ",\n", one.dump());
  }
  nlohmann::json covers = nlohmann::json::array();
  if (s.cover().strength > 0) covers.push_back(cover_json(s, "--cover", s.cover()));
  for (const auto& [title, c] : s.suite_covers()) covers.push_back(cover_json(s, title, c));
  fmt::print("\n], \"covers\": {}}}\n", covers.dump());
}

/// How many cases there are, and the seconds that they are estimated to take one after another.
nlohmann::json count_json(const Selection& s) {
  double seconds = 0;
  for (std::size_t i = 0; i < s.size(); ++i) seconds += s.seconds(i);
  return {{"cases", s.size()}, {"seconds", seconds}};
}

void print_plain(const Selection& s, bool reasons) {
  std::string buffer;
  for (std::size_t i = 0; i < s.size(); ++i) {
    buffer += s.id(i);
    if (const auto d = reasons ? s.declared(i) : std::nullopt)
      fmt::format_to(std::back_inserter(buffer), "  {}: {}", name(d->outcome), d->reason);
    buffer += '\n';
    if (buffer.size() > (1u << 16)) {
      std::fwrite(buffer.data(), 1, buffer.size(), stdout);
      buffer.clear();
    }
  }
  std::fwrite(buffer.data(), 1, buffer.size(), stdout);
  if (s.cover().strength > 0) print_cover(s, "--cover", s.cover());
  if (reasons)
    for (const auto& [title, c] : s.suite_covers()) print_cover(s, title, c);
}

/// A title may begin with the time that the suite's cases take: "seconds; one case per class". "" if it does not.
std::string_view time_of(std::string_view title) {
  const auto first = title.substr(0, title.find("; "));
  for (const char* unit : {"seconds", "minute", "minutes", "hours"})
    if (first.size() < title.size() && first.ends_with(unit)) return first;
  return {};
}

/// The suites themselves: what a list without a selection shows.
int list_suites(const catalogue::Catalogue& cat, const Globals& globals) {
  nlohmann::json all = nlohmann::json::array();
  std::size_t width = 0;
  for (const auto& [id, suite] : cat.suites()) width = std::max(width, id.size());
  for (const auto& [id, suite] : cat.suites()) {
    const auto time = time_of(suite.title);
    if (globals.json)
      all.push_back({{"suite", id}, {"title", suite.title}, {"time", time}});
    else
      fmt::print("{:<{}}  {:<13}  {}\n", id, width, time, suite.title.substr(time.empty() ? 0 : time.size() + 2));
  }
  if (globals.json) fmt::print("{}\n", nlohmann::json{{"suites", all}}.dump(2));
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto select = std::make_shared<SelectOptions>();
  auto count = std::make_shared<bool>(false), reasons = std::make_shared<bool>(false);
  declare_selection(command, *select);
  declare_subjects(command, *select);
  command.add_flag("--count", *count, "Print only the number of cases");
  command.add_flag("--reasons", *reasons, "Print why a listed case will not run, and which covering arrays the suites use");
  return [=, &globals] {
    take_subjects(*select);
    const catalogue::Catalogue cat(catalogue::find_cases(globals.cases), additions_here(globals.cases));
    const bool anything = !select->suites.empty() || !select->ids.empty() || !select->files.empty() ||
                          !select->where.empty() || !select->failed.empty() || select->cover > 0 || !select->shard.empty() ||
                          select->budget > 0;
    if (!anything) return static_cast<int>(list_suites(cat, globals));
    const Selection s = matrix::select(cat, query_of(*select));
    if (s.empty()) throw NothingSelected(s.why_empty());
    if (*count && globals.json)
      fmt::print("{}\n", count_json(s).dump());
    else if (*count)
      fmt::print("{}\n", s.size());
    else if (globals.json)
      print_json(s);
    else
      print_plain(s, *reasons);
    return static_cast<int>(exit_as_expected);
  };
}

}  // namespace kvcts::cli::list_verb
