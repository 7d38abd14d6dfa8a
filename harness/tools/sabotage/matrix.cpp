#include "tools/sabotage/matrix.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvcts::sabotage {

namespace {

std::string checks(const Catch& c) { return fmt::format("{}", fmt::join(c.checks, " + ")); }

/// "yes", or the class that it was given instead.
std::string naming(const Row& row) {
  if (!row.caught || row.saboteur.harmless) return "";
  if (row.caught->named) return "yes";
  const auto& d = row.caught->result.diagnosis;
  return d.exact && d.fault_class != FaultClass::none ? std::string(name(d.fault_class)) : "no";
}

std::string_view fault_class(const Row& row) {
  return row.saboteur.harmless ? "(right code)" : name(row.saboteur.fault_class);
}

std::string noticed(const Row& row) {
  if (row.caught) return checks(*row.caught);
  if (row.skipped()) return "SKIPPED";
  return row.saboteur.harmless ? "not caught" : "NOT CAUGHT";
}

/// Rows of all harnesses by saboteur, for saboteurs that all of them have.
std::vector<std::vector<const Row*>> side_by_side(const std::vector<Campaigned>& harnesses) {
  std::vector<std::vector<const Row*>> out;
  for (const Row& first : harnesses.at(0).rows) {
    std::vector<const Row*> line;
    for (const auto& harness : harnesses) {
      const auto found = std::find_if(harness.rows.begin(), harness.rows.end(),
                                      [&](const Row& row) { return row.saboteur.id == first.saboteur.id && row.tried > 0; });
      if (found != harness.rows.end()) line.push_back(&*found);
    }
    if (line.size() == harnesses.size()) out.push_back(std::move(line));
  }
  return out;
}

/// Ours stops at its first catch; for the others all cases run.
std::string verdict(const Row& row, bool ours) {
  if (row.saboteur.harmless) return row.caught ? "FALSE ALARM" : "passes";
  if (!row.caught) return "MISS";
  return ours ? "caught" : fmt::format("{} of {}", row.noticed, row.tried);
}

std::vector<std::size_t> caught_of(const std::vector<std::vector<const Row*>>& lines, std::size_t harnesses) {
  std::vector<std::size_t> out(harnesses);
  for (const auto& line : lines) {
    for (std::size_t h = 0; h < harnesses; ++h) out[h] += !line[h]->saboteur.harmless && line[h]->caught;
  }
  return out;
}

std::size_t wrong_ones(const std::vector<std::vector<const Row*>>& lines) {
  return static_cast<std::size_t>(
      std::count_if(lines.begin(), lines.end(), [](auto& line) { return !line[0]->saboteur.harmless; }));
}

}  // namespace

std::string totals_text(const Campaigned& campaign) {
  const Totals t = totals_of(campaign.rows);
  std::string out = fmt::format("{}: {} of {} faults caught, {} named", campaign.name, t.caught, t.saboteurs, t.named);
  if (t.saboteurs > 0)
    out += fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(t.named) / static_cast<double>(t.saboteurs));
  const std::size_t controls = campaign.rows.size() - t.saboteurs;
  if (t.skipped > 0) out += fmt::format(", {} skipped", t.skipped);
  return out + fmt::format("; {} false alarm{} of {} control{}\n", t.false_alarms, t.false_alarms == 1 ? "" : "s", controls,
                           controls == 1 ? "" : "s");
}

std::string matrix_text(const Campaigned& campaign) {
  std::size_t width = 5;
  for (const auto& row : campaign.rows) width = std::max(width, row.saboteur.id.size());
  std::string out = fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:<9} {:>5}  case\n", "fault", width, "caught by", "class",
                                "named", "suite", "tried");
  for (const auto& row : campaign.rows) {
    const std::string where = row.caught       ? row.caught->id
                              : row.tried == 0 ? "no case has a place for it"
                              : row.skipped()  ? row.why_silent
                                               : "";
    std::string line = fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:<9} {:>5}  {}", row.saboteur.id, width, noticed(row),
                                   fault_class(row), naming(row), row.caught ? row.caught->suite : "", row.tried, where);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out + "\n" + totals_text(campaign);
}

nlohmann::json matrix_json(const Campaigned& campaign) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& row : campaign.rows) {
    nlohmann::json one{{"saboteur", row.saboteur.id},
                       {"kind", row.saboteur.kind},
                       {"title", row.saboteur.title},
                       {"class", row.saboteur.fault_class},
                       {"harmless", row.saboteur.harmless},
                       {"caught", row.caught.has_value()},
                       {"tried", row.tried}};
    if (row.skipped()) one["skipped"] = row.why_silent;
    if (row.caught) {
      const auto& c = *row.caught;
      one["case"] = c.id, one["suite"] = c.suite, one["checks"] = c.checks, one["named"] = c.named;
      one["outcome"] = name(c.result.outcome), one["diagnosis"] = c.result.diagnosis.text, one["message"] = c.result.message,
      one["wrong_bytes"] = c.result.wrong_bytes;
      one["diagnosed"] = c.result.diagnosis.exact ? c.result.diagnosis.fault_class : FaultClass::none;
    }
    list.push_back(std::move(one));
  }
  const Totals t = totals_of(campaign.rows);
  return {{"suite", campaign.name},
          {"saboteurs", std::move(list)},
          {"totals",
           {{"saboteurs", t.saboteurs},
            {"caught", t.caught},
            {"named", t.named},
            {"skipped", t.skipped},
            {"false_alarms", t.false_alarms},
            {"good", t.good()}}}};
}

std::string harnesses_text(const std::vector<Campaigned>& harnesses) {
  const auto lines = side_by_side(harnesses);
  std::size_t width = 5;
  for (const auto& line : lines) width = std::max(width, line[0]->saboteur.id.size());
  std::string out = fmt::format("{:<{}}", "fault", width);
  for (const auto& harness : harnesses) out += fmt::format("  {:<11}", harness.name);
  out += "\n";
  for (const auto& line : lines) {
    out += fmt::format("{:<{}}", line[0]->saboteur.id, width);
    for (const Row* row : line) out += fmt::format("  {:<11}", verdict(*row, row == line[0]));
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  out += "\n";
  const auto caught = caught_of(lines, harnesses.size());
  for (std::size_t h = 0; h < harnesses.size(); ++h)
    out += fmt::format("{}: {} of {} caught\n", harnesses[h].name, caught[h], wrong_ones(lines));
  return out;
}

nlohmann::json harnesses_json(const std::vector<Campaigned>& harnesses) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& line : side_by_side(harnesses)) {
    nlohmann::json one{{"saboteur", line[0]->saboteur.id}, {"harmless", line[0]->saboteur.harmless}};
    for (std::size_t h = 0; h < harnesses.size(); ++h)
      one["noticed"][harnesses[h].name] = line[h]->noticed, one["cases"][harnesses[h].name] = line[h]->tried;
    out.push_back(std::move(one));
  }
  return {{"harnesses", std::move(out)}};
}

}  // namespace kvcts::sabotage
