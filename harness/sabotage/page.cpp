#include "sabotage/page.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvcts::sabotage {

namespace {

std::string checks(const Catch& c) { return fmt::format("{}", fmt::join(c.checks, " + ")); }

/// "yes", or what it was called instead.
std::string naming(const Row& row) {
  if (!row.caught) return "";
  if (row.saboteur.harmless) return "-";
  if (row.caught->named) return "yes";
  const auto& d = row.caught->result.diagnosis;
  return d.exact && !d.fault_class.empty() ? d.fault_class : "no";
}

}  // namespace

std::string matrix_text(const std::string& suite, const std::vector<Row>& rows) {
  std::size_t width = 8;
  for (const auto& row : rows) width = std::max(width, row.saboteur.id.size());
  std::string out = fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:>5}  case\n", "saboteur", width, "caught by", "class", "named", "tried");
  for (const auto& row : rows) {
    const std::string fault_class = row.saboteur.harmless ? "(right code)" : row.saboteur.fault_class;
    if (row.caught) {
      out += fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:>5}  {}\n", row.saboteur.id, width, checks(*row.caught), fault_class, naming(row), row.tried, row.caught->id);
    } else {
      out += fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:>5}  {}\n", row.saboteur.id, width, row.saboteur.harmless ? "not caught" : "NOT CAUGHT", fault_class, "",
                         row.tried, row.tried == 0 ? "no case has a place for it" : "");
    }
  }
  const Totals t = totals_of(rows);
  out += fmt::format("\n{}: {} of {} saboteurs caught, {} named", suite, t.caught, t.saboteurs, t.named);
  if (t.saboteurs > 0) out += fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(t.named) / static_cast<double>(t.saboteurs));
  return out + fmt::format("; {} false alarms of {} controls\n", t.false_alarms, rows.size() - t.saboteurs);
}

nlohmann::json matrix_json(const std::string& suite, const std::vector<Row>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& row : rows) {
    nlohmann::json one{{"saboteur", row.saboteur.id}, {"kind", row.saboteur.kind},   {"title", row.saboteur.title}, {"class", row.saboteur.fault_class},
                       {"harmless", row.saboteur.harmless}, {"caught", row.caught.has_value()}, {"tried", row.tried}};
    if (row.caught) {
      const auto& c = *row.caught;
      one["case"] = c.id, one["suite"] = c.suite, one["checks"] = c.checks, one["named"] = c.named;
      one["outcome"] = name(c.result.outcome), one["diagnosis"] = c.result.diagnosis.text, one["message"] = c.result.message;
      one["diagnosed"] = c.result.diagnosis.exact ? c.result.diagnosis.fault_class : "";
    }
    list.push_back(std::move(one));
  }
  const Totals t = totals_of(rows);
  return {{"suite", suite}, {"saboteurs", std::move(list)},
          {"totals", {{"saboteurs", t.saboteurs}, {"caught", t.caught}, {"named", t.named}, {"false_alarms", t.false_alarms}, {"good", t.good()}}}};
}

}  // namespace kvcts::sabotage
