#include "cli/report/case_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/report/columns.hpp"
#include "cli/report/text.hpp"
#include "cli/report/vocabulary.hpp"

namespace kvcts::report {
namespace {

using nlohmann::json;

constexpr std::size_t evidence_shown = 6'000;  // bytes of one evidence text
constexpr std::size_t evidence_files = 6;
constexpr std::size_t wrong_shown = 16;
constexpr std::size_t detail_limit = 60'000;
constexpr int details_a_cause = 3;

// The page shows texts as text, so nothing is escaped; what would steer or cannot be UTF-8 is made visible.
json safe(const json& value) {
  if (value.is_string()) return visible(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  json out = value.is_array() ? json::array() : json::object();
  for (const auto& [key, item] : value.items()) {
    if (value.is_array())
      out.push_back(safe(item));
    else
      out[visible(key)] = safe(item);
  }
  return out;
}

json detail(const store::Row& row) {
  const auto& r = row.result;
  json out{{"expected", visible(expected_text(row.planned.expected))}};
  const auto put = [&](const char* key, const std::string& text) {
    if (!text.empty()) out[key] = visible(text);
  };
  put("message", r.message);
  put("diagnosis", r.diagnosis.text);
  if (!r.diagnosis.text.empty()) out["exact"] = r.diagnosis.exact;
  put("next", r.diagnosis.what_to_do);
  for (std::size_t i = 1; i < r.diagnosis.causes.size(); ++i)
    out["others"].push_back(visible(to_string(r.diagnosis.causes[i])));
  put("waiver", r.waiver);
  if (r.tries.made > 1) {
    out["tries"] = {tries_text(r.tries), tries_to_see(r.tries), json::array()};
    for (const Try& one : r.tries.failures)
      out["tries"][2].push_back({one.number,
                                 std::string(name(one.outcome)) +
                                     (one.fault_class == FaultClass::none ? "" : " " + std::string(name(one.fault_class))),
                                 visible(cut(one.message, 300))});
  }
  put("shared", row.shared_with);
  put("worker", r.worker);
  if (!r.worker.empty()) out["ordinal"] = r.worker_ordinal + 1;
  put("after", r.ran_before);
  if (repeat_options_of(r).as_run) out["as_run"] = true;
  out["seed"] = std::to_string(r.seed);  // 64 bits: more than a number of JavaScript holds
  out["digest"] = r.case_digest;
  if (r.checked_bytes > 0)
    out["bytes"] = {r.checked_bytes, r.wrong_bytes, r.planned_bytes, r.moved_bytes, r.expected_bytes, r.copies};
  if (r.peak_bytes > 0) out["peak"] = r.peak_bytes;
  for (const auto& p : r.phases) out["phases"].push_back({std::string(name(p.phase)), p.ns});
  for (const Finding& one : r.what_happened) out["happened"].push_back(visible(one.text));
  for (const auto& w : r.first_wrong)
    if (out["wrong"].size() < wrong_shown)
      out["wrong"].push_back({visible(w.where), visible(w.region), w.offset, visible(w.expected), visible(w.observed)});
  for (const auto& file : r.evidence_files) {
    if (out["evidence"].size() == evidence_files) break;
    const auto shown = std::string_view(file.text).substr(0, evidence_shown);
    out["evidence"].push_back({visible(file.kind), file.text.size(), visible(shown, true)});
  }
  for (const auto* key : {"title", "links", "file", "engine_version", "engine_claims"}) {
    if (const auto it = r.facts.find(key); it != r.facts.end()) out[key] = safe(*it);
  }
  if (r.picture.is_object()) out["picture"] = safe(r.picture);
  return out;
}

}  // namespace

json CaseData::axes_of(const store::Row& row) const {
  if (const auto it = row.result.facts.find("axes"); it != row.result.facts.end() && it->is_object()) return *it;
  return space_ ? axes_of_id(*space_, row.planned.id) : json::object();
}

void CaseData::add(const store::Row& row, Section section, const std::string& cause) {
  const auto& r = row.result;
  Case c;
  c.id = visible(row.planned.id);
  const auto new_characters =
      c.id.size() -
      static_cast<std::size_t>(
          std::mismatch(c.id.begin(), c.id.begin() + static_cast<std::ptrdiff_t>(std::min(c.id.size(), last_id_.size())),
                        last_id_.begin())
              .first -
          c.id.begin());
  last_id_ = c.id;
  auto& room = section == Section::fine ? plain_room_ : notable_room_;
  const std::size_t cost = new_characters + 50;
  if (cost > room) {
    ++left_out_;
    return;
  }
  room -= cost;
  c.cause = cause;
  c.ending = visible(row.decided ? ending_text(r) : "NOT_RUN");
  c.fault_class = name(r.diagnosis.fault_class);
  c.outcome = r.outcome;
  c.verdict = row.decided ? name(r.verdict) : row.declared_not_run ? "not run" : "absent";
  c.evidence = row.decided && !r.phases.empty() ? evidence_name(r) : "";
  c.section = section;
  c.ran = row.executions > 0 && !r.phases.empty();
  c.us = row.decided ? (r.wall_ns + 500) / 1000 : 0;
  const nlohmann::json axes = axes_of(row);
  for (const auto& [axis, value] : axes.items())
    c.axes.emplace_back(visible(axis), visible(value.is_string() ? value.get<std::string>() : value.dump()));

  const bool first = !cause.empty() && section <= Section::waived && ++details_of_cause_[cause] <= details_a_cause;
  auto& detail_room = first ? detail_room_ : more_room_;
  if (detail_room > 500 && (first || section != Section::unsupported)) {
    std::string text = detail(row).dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() <= std::min(detail_room, detail_limit)) {
      detail_room -= text.size();
      c.detail = std::move(text);
    }
  }
  cases_.push_back(std::move(c));
}

json CaseData::json() const {
  static constexpr std::array<std::string_view, section_count> sections{"failed",  "error",  "xpass",       "waived",
                                                                        "skipped", "notrun", "unsupported", "fine"};
  IdColumn ids;
  WordColumn outcome, verdict, evidence, ending, fault_class, cause, section, ran;
  nlohmann::json us = nlohmann::json::array(), details = nlohmann::json::object();
  std::set<std::string> names;
  for (const auto& c : cases_)
    for (const auto& [axis, value] : c.axes) names.insert(axis);
  std::map<std::string, WordColumn> axes;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const auto& c = cases_[i];
    ids.add(c.id);
    outcome.add(std::string(name(c.outcome)));
    verdict.add(std::string(c.verdict));
    evidence.add(std::string(c.evidence));
    ending.add(c.ending);
    fault_class.add(c.fault_class);
    cause.add(c.cause);
    section.add(std::string(sections[static_cast<std::size_t>(c.section)]));
    ran.add(c.ran ? "1" : "");
    us.push_back(c.us);
    for (const auto& axis : names) {
      const auto value = std::find_if(c.axes.begin(), c.axes.end(), [&](const auto& a) { return a.first == axis; });
      axes[axis].add(value == c.axes.end() ? "" : value->second);
    }
    if (!c.detail.empty()) details[std::to_string(i)] = nlohmann::json::parse(c.detail);
  }
  nlohmann::json columns = nlohmann::json::object();
  for (const auto& [axis, column] : axes) columns[axis] = column.json();
  return {
      {"format", "kvcts-page"},     {"n", cases_.size()},           {"ids", ids.json()},       {"outcome", outcome.json()},
      {"verdict", verdict.json()},  {"evidence", evidence.json()},  {"ending", ending.json()}, {"class", fault_class.json()},
      {"cause", cause.json()},      {"section", section.json()},    {"ran", ran.json()},       {"us", std::move(us)},
      {"axes", std::move(columns)}, {"details", std::move(details)}};
}

std::string script_safe(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace kvcts::report
