#include "cli/report/by_link.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

using nlohmann::json;

struct Linked {
  std::string id, title;
  Outcome outcome{Outcome::not_run};  ///< stays where the run has only controls of the case
  FaultClass fault_class{};
  Verdict verdict{Verdict::not_run};
  std::int64_t controls{0}, good{0};  ///< good: as expected
};
struct Group {
  std::string link;
  std::vector<Linked> cases;
};

std::string fact(const json& facts, const json::json_pointer& at) {  // a store is read as data of a stranger
  return facts.contains(at) && facts.at(at).is_string() ? visible(facts.at(at).get<std::string>()) : "";
}

std::vector<Group> groups(const store::RunReader& reader) {
  std::vector<Group> out;
  std::unordered_map<std::string, std::size_t> places;                         // of links
  std::unordered_map<std::string, std::pair<std::size_t, std::size_t>> known;  // cases
  reader.for_each([&](const store::Row& row) {
    const std::string id = row.planned.id.substr(0, row.planned.id.find('#'));
    if (!known.contains(id)) {
      const std::string link = fact(row.result.facts, "/links/0"_json_pointer);
      if (link.empty()) return;
      const std::size_t place = places.emplace(link, out.size()).first->second;
      if (place == out.size()) out.push_back({link, {}});
      known[id] = {place, out[place].cases.size()};
      out[place].cases.emplace_back().id = visible(id);
    }
    Linked& of = out[known[id].first].cases[known[id].second];
    if (id != row.planned.id) {
      ++of.controls, of.good += row.result.verdict == Verdict::as_expected;
      return;
    }
    of.title = fact(row.result.facts, "/title"_json_pointer);
    of.outcome = row.result.outcome, of.fault_class = row.result.diagnosis.fault_class, of.verdict = row.result.verdict;
  });
  return out;
}

}  // namespace

std::string by_link(const store::RunReader& reader, bool as_json) {
  json reports = json::array();
  std::string text;
  std::int64_t all_good = 0;
  for (const Group& group : groups(reader)) {
    json cases = json::array();
    std::int64_t controls = 0, good = 0, ended_well = 0;
    text += group.link + "\n";
    for (const Linked& c : group.cases) {
      const std::string_view outcome = name(c.outcome), fault = name(c.fault_class), verdict = name(c.verdict);
      text += fmt::format("  {}  {} {}, {}; {} of {} controls as expected\n", c.id, outcome, fault.empty() ? "-" : fault,
                          verdict, c.good, c.controls);
      cases.push_back({{"case", c.id}, {"outcome", outcome}, {"class", fault}, {"verdict", verdict}, {"title", c.title}});
      controls += c.controls, good += c.good, ended_well += c.verdict == Verdict::as_expected;
    }
    all_good += good == controls && ended_well == std::ssize(group.cases);
    reports.push_back({{"link", group.link}, {"cases", cases}, {"controls", controls}, {"controls_as_expected", good}});
  }
  if (reports.empty()) return "";
  if (as_json) return json{{"reports", reports}}.dump(2) + "\n";
  return text + fmt::format("{}, {} with every case and control as expected\n",
                            plural(static_cast<std::int64_t>(reports.size()), "report"), all_good);
}

}  // namespace kvcts::report
