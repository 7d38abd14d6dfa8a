#include "tools/sabotage/matrix.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvcts::sabotage {

namespace {

std::string checks(const Catch& c) { return fmt::format("{}", fmt::join(c.checks, " + ")); }

/// "yes", or the class that it was given instead.
std::string naming(const CampaignRow& row) {
  if (!row.caught || row.injector.harmless) return "";
  if (row.caught->named) return "yes";
  const auto& d = row.caught->result.diagnosis;
  return d.exact && d.fault_class != FaultClass::none ? std::string(name(d.fault_class)) : "no";
}

std::string_view fault_class(const CampaignRow& row) {
  return row.injector.harmless ? "(right code)" : name(row.injector.fault_class);
}

std::string noticed(const CampaignRow& row) {
  if (row.caught) return checks(*row.caught);
  if (row.skipped()) return "SKIPPED";
  return row.injector.harmless ? "not caught" : "NOT CAUGHT";
}

}  // namespace

std::string totals_text(const Campaigned& campaign) {
  const Totals t = totals_of(campaign.rows);
  std::string out = fmt::format("{}: {} of {} faults caught, {} named", campaign.name, t.caught, t.injectors, t.named);
  if (t.injectors > 0)
    out += fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(t.named) / static_cast<double>(t.injectors));
  const std::size_t controls = campaign.rows.size() - t.injectors;
  if (t.skipped > 0) out += fmt::format(", {} skipped", t.skipped);
  return out + fmt::format("; {} false alarm{} of {} control{}\n", t.false_alarms, t.false_alarms == 1 ? "" : "s", controls,
                           controls == 1 ? "" : "s");
}

std::string matrix_text(const Campaigned& campaign) {
  std::size_t width = 5;
  for (const auto& row : campaign.rows) width = std::max(width, row.injector.id.size());
  std::string out = fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:<9} {:>5}  case\n", "fault", width, "caught by", "class",
                                "named", "suite", "tried");
  for (const auto& row : campaign.rows) {
    const std::string where = row.caught       ? row.caught->id
                              : row.tried == 0 ? "no case has a place for it"
                              : row.skipped()  ? row.why_silent
                                               : "";
    std::string line = fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:<9} {:>5}  {}", row.injector.id, width, noticed(row),
                                   fault_class(row), naming(row), row.caught ? row.caught->suite : "", row.tried, where);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out + "\n" + totals_text(campaign);
}

nlohmann::json matrix_json(const Campaigned& campaign) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& row : campaign.rows) {
    nlohmann::json one{{"saboteur", row.injector.id},
                       {"kind", row.injector.kind},
                       {"title", row.injector.title},
                       {"class", row.injector.fault_class},
                       {"harmless", row.injector.harmless},
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
           {{"saboteurs", t.injectors},
            {"caught", t.caught},
            {"named", t.named},
            {"skipped", t.skipped},
            {"false_alarms", t.false_alarms},
            {"good", t.good()}}}};
}

}  // namespace kvcts::sabotage
