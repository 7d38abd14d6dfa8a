#include "cli/report/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "case/catalogue/nearest.hpp"
#include "cli/report/text.hpp"
#include "matrix/ids.hpp"

namespace kvcts::report {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, change_count> names{
    "newly failing",           "newly flaky", "other cause", "newly skipped", "vanished", "other evidence",
    "flaky, passed this time", "fixed",       "new",         "renamed"};

/// What a comparison needs of a row; whole rows of a long run would not fit.
struct Case {
  std::string id, digest;
  Section section{};
  bool flaky{false}, optional{false};
  Standing standing;
  Times times;              ///< none: did not pass, or shares another case's execution
  std::vector<int> values;  ///< of its axes, see Pace
};

bool fails(Section section) { return section == Section::failed || section == Section::suite_error; }
bool has_not_run(Section section) {
  return section == Section::skipped || section == Section::not_run || section == Section::unsupported;
}

Case case_of(const store::Row& row, Pace* pace) {
  const CaseResult& r = row.result;
  Case out{row.planned.id, row.planned.digest, section_of(row), r.outcome == Outcome::flaky, false, {}, {}, {}};
  out.standing = {row.decided ? ending_text(r) : "absent",
                  std::string(name(r.verdict)),
                  has_not_run(out.section) || !row.decided ? "" : std::string(name(r.evidence)),
                  r.diagnosis.fault_class,
                  r.message,
                  r.tries,
                  kind_of(r)};
  if (const auto lack = r.facts.find("lack"); lack != r.facts.end() && lack->is_object())
    out.optional = lack->value("optional", false);
  out.optional |= out.section == Section::unsupported;
  if (out.section == Section::fine && r.outcome == Outcome::pass && row.executions > 0) {
    out.times.ns = r.wall_ns;
    for (const PhaseTime& time : r.phases)
      if (time.phase == Phase::generate || time.phase == Phase::compare) out.times.own_ns += time.ns;
  }
  if (const auto axes = r.facts.find("axes"); pace && out.times.ns > 0 && axes != r.facts.end())
    out.values = pace->values(*axes);
  return out;
}

/// A run's cases, and the versions of the engines and connectors that ran in it.
struct Cases {
  std::vector<Case> all;
  std::map<std::string, std::string> versions;
};

/// `pace`: that will want the values of their axes; null: no one will.
Cases cases_of(const store::RunReader& reader, Pace* pace) {
  Cases out;
  reader.for_each([&](const store::Row& row) {
    out.all.push_back(case_of(row, pace));
    const json& facts = row.result.facts;
    const auto version = [&](const char* kind, const json& of) {
      const auto name = facts.find(kind);
      if (of.is_string() && name != facts.end() && name->is_string())
        out.versions[fmt::format("{} {}", kind, name->get<std::string>())] = of.get<std::string>();
    };
    if (facts.contains("engine_version")) version("engine", facts["engine_version"]);
    if (const auto program = facts.find("connector_program"); program != facts.end() && program->is_object())
      version("connector", program->value("version", json()));
  });
  return out;
}

/// Would so many tries all end alike by chance, where the rate of that is at most `rate`? Less than 5 % is no.
bool by_chance(double rate, const Tries& tries) {
  return std::pow(rate, static_cast<double>(std::max<std::int64_t>(1, tries.made))) >= 0.05;
}

/// Is it one of the failures that the flaky case was seen with?
bool seen_before(const Case& flaky, const Case& now) {
  const auto& failures = flaky.standing.tries.failures;
  return std::any_of(failures.begin(), failures.end(), [&](const Try& one) {
    return one.fault_class == now.standing.fault_class && now.standing.ending.starts_with(name(one.outcome));
  });
}

/// Of a case that was flaky, and fails or passes in every try now.
std::optional<Change> after_flaky(const Case& before, const Case& after) {
  const Rate rate = rate_of(before.standing.tries);
  if (!fails(after.section)) return by_chance(1 - rate.low, after.standing.tries) ? Change::flaky_passed : Change::fixed;
  if (!seen_before(before, after)) return Change::other_cause;
  return by_chance(rate.high, after.standing.tries) ? std::nullopt : std::optional(Change::newly_failing);
}

std::optional<Change> change_of(const Case* before, const Case& after, bool mapped) {
  const Change failing = after.flaky ? Change::newly_flaky : Change::newly_failing;
  if (!before) return fails(after.section) ? failing : Change::added;
  if (before->flaky && !after.flaky && !has_not_run(after.section)) return after_flaky(*before, after);
  if (fails(after.section)) {
    if (!fails(before->section)) return failing;
    return before->standing.ending == after.standing.ending ? std::nullopt : std::optional(Change::other_cause);
  }
  if (has_not_run(after.section)) return has_not_run(before->section) ? std::nullopt : std::optional(Change::newly_skipped);
  if (fails(before->section)) return Change::fixed;
  if (!has_not_run(before->section) && before->standing.evidence != after.standing.evidence) return Change::other_evidence;
  if (before->id != after.id && !mapped) return Change::renamed;
  return std::nullopt;
}

/// The earlier run's cases by the ids that they would have in the later one.
class Pairs {
 public:
  Pairs(const std::vector<Case>& old, const std::vector<Case>& now, std::vector<Mapping>& mapped) {
    for (const Case& c : now) there_.insert(c.id);
    for (const Case& c : old) by_id_.emplace(c.id, &c);
    if (mapped.empty()) mapped = seen(old, now);
    for (const Case& c : old) {
      std::string id = c.id;
      for (Mapping& m : mapped) {
        const matrix::Axis& axis = *matrix::find_axis(m.axis);
        if (!matrix::is_matrix_id(id) || matrix::value_in_id(id, axis) != m.before) continue;
        id = matrix::id_with(id, axis, m.after);
        m.cases += there_.contains(id);
      }
      if (id != c.id && there_.contains(id) && by_id_.try_emplace(id, &c).second)
        mapped_.insert(&c);
      else if (!there_.contains(c.id))
        gone_[c.digest].push_back(&c);
    }
  }

  const Case* take(const Case& now) {
    if (const auto found = by_id_.find(now.id); found != by_id_.end()) return found->second;
    const auto same = gone_.find(now.digest);
    if (same == gone_.end() || same->second.empty()) return nullptr;
    const Case* was = same->second.front();
    same->second.erase(same->second.begin());
    return was;
  }
  bool mapped(const Case* before) const { return mapped_.contains(before); }
  /// Of which the later run has no like.
  bool left(const Case& before) const {
    const auto found = gone_.find(before.digest);
    return found != gone_.end() && std::find(found->second.begin(), found->second.end(), &before) != found->second.end();
  }

 private:
  /// Values of an axis that are gone where another is new, in the same cases otherwise: another version of what is tested.
  std::vector<Mapping> seen(const std::vector<Case>& old, const std::vector<Case>& now) const {
    std::vector<Mapping> out;
    for (const auto id : {matrix::AxisId::engine, matrix::AxisId::connector}) {
      const matrix::Axis& axis = matrix::axis(id);
      std::set<std::string, std::less<>> before, after;
      const auto collect = [&](const std::vector<Case>& cases, auto& values) {
        for (const Case& c : cases)
          if (matrix::is_matrix_id(c.id)) values.emplace(matrix::value_in_id(c.id, axis));
      };
      collect(old, before), collect(now, after);
      std::map<std::pair<std::string, std::string>, std::int64_t> votes;
      std::map<std::string, std::int64_t, std::less<>> all;
      for (const Case& c : old) {
        if (!matrix::is_matrix_id(c.id)) continue;
        const std::string value(matrix::value_in_id(c.id, axis));
        if (after.contains(value)) continue;
        ++all[value];
        for (const std::string& other : after)
          if (!before.contains(other) && there_.contains(matrix::id_with(c.id, axis, other))) ++votes[{value, other}];
      }
      for (const auto& [value, count] : all) {
        const auto best = std::max_element(votes.begin(), votes.end(), [&, of = &value](const auto& x, const auto& y) {
          return (x.first.first == *of ? x.second : 0) < (y.first.first == *of ? y.second : 0);
        });
        if (best != votes.end() && best->first.first == value && 2 * best->second >= count)
          out.push_back({std::string(axis.name), value, best->first.second, 0, true});
      }
    }
    return out;
  }

  std::unordered_set<std::string_view> there_;
  std::unordered_map<std::string, const Case*> by_id_;
  std::unordered_map<std::string_view, std::vector<const Case*>> gone_;  // by digest
  std::unordered_set<const Case*> mapped_;
};

json as_json(const std::optional<Standing>& s) {
  if (!s) return nullptr;
  return {{"ending", s->ending},
          {"verdict", s->verdict},
          {"evidence", s->evidence},
          {"fault_class", s->fault_class},
          {"message", s->message},
          {"tries", {{"made", std::max<std::int64_t>(1, s->tries.made)}, {"failed", s->tries.failed}}}};
}

json as_json(const store::RunInfo& info) {
  return {{"suite", info.suite},
          {"selection", info.selection},
          {"started", store::utc(info.started_ms)},
          {"version", info.version},
          {"provenance", info.provenance}};
}

}  // namespace

std::string_view name(Change change) { return names[static_cast<std::size_t>(change)]; }

std::int64_t Comparison::of(Change change) const {
  return std::count_if(changes.begin(), changes.end(), [&](const Changed& c) { return c.change == change; });
}

Mapping mapping_from_text(std::string_view text) {
  const std::size_t equals = text.find('='), colon = text.find(':', equals);
  if (equals == std::string_view::npos || colon == std::string_view::npos)
    throw catalogue::Error(fmt::format("expected AXIS=BEFORE:AFTER, found '{}'", text));
  Mapping out{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1, colon - equals - 1)),
              std::string(text.substr(colon + 1))};
  if (!matrix::find_axis(out.axis))
    throw catalogue::Error(fmt::format("expected the name of an axis, found '{}'{}", out.axis,
                                       catalogue::suggestion(out.axis, matrix::axis_names())));
  return out;
}

Comparison compare(const store::RunReader& before, const store::RunReader& after, std::vector<Mapping> mapped) {
  Comparison out{before.info(), after.info(), {}, {}, std::move(mapped), {}, 0, 0, 0, 0, 1, 1};
  Pace pace;
  const Cases was_cases = cases_of(before, nullptr), now_cases = cases_of(after, &pace);
  const std::vector<Case>&old = was_cases.all, &now = now_cases.all;
  Pairs pairs(old, now, out.mapped);
  std::int64_t in_both = 0;
  for (const Case& c : now) {
    const Case* was = pairs.take(c);
    const bool mapped_case = was && pairs.mapped(was);
    in_both += was != nullptr;
    if (was && was->times.ns > 0 && c.times.ns > 0 && (mapped_case || was->digest == c.digest))
      pace.add(was->times, c.times, c.values);
    const auto change = change_of(was, c, mapped_case);
    if (change == Change::added && out.before.left_out > 0) {
      ++out.only_one;
      continue;
    }
    if (!change) {
      ++out.alike;
      out.still_failing += fails(c.section);
      continue;
    }
    out.lost += change == Change::newly_skipped && !c.optional;
    out.changes.push_back({*change, c.id, was && was->id != c.id ? was->id : "",
                           was ? std::optional(was->standing) : std::nullopt, c.standing});
  }
  if (in_both == 0 && !old.empty() && !now.empty())
    throw store::Error(fmt::format("expected two runs with cases in common, found none in '{}' and '{}'", out.before.suite,
                                   out.after.suite));
  for (const Case& c : old) {
    if (!pairs.left(c)) continue;
    if (out.after.left_out > 0)
      ++out.only_one;
    else
      out.changes.push_back({Change::vanished, c.id, "", c.standing, std::nullopt});
  }
  std::stable_sort(out.changes.begin(), out.changes.end(),
                   [](const Changed& x, const Changed& y) { return x.change < y.change; });
  out.slower = pace.slower();
  out.pace = pace.of_all(), out.pace_of_suite = pace.of_suite();
  for (const auto& [subject, version] : now_cases.versions) {
    const auto was = was_cases.versions.find(subject);
    if (was != was_cases.versions.end() && was->second != version) out.differs.push_back({subject, was->second, version});
  }
  for (store::Difference& one : store::differences(out.before, out.after)) out.differs.push_back(std::move(one));
  return out;
}

json to_json(const Comparison& c) {
  json out{{"format", "kvcts-compare"},
           {"version", 1},
           {"before", as_json(c.before)},
           {"after", as_json(c.after)},
           {"alike", c.alike},
           {"still_failing", c.still_failing},
           {"only_one", c.only_one},
           {"lost", c.lost},
           {"pace", c.pace},
           {"pace_of_suite", c.pace_of_suite},
           {"counts", json::object()},
           {"mapped", json::array()},
           {"differences", json::array()},
           {"changes", json::array()},
           {"slower", json::array()}};
  for (int k = 0; k < change_count; ++k)
    out["counts"][std::string(names[static_cast<std::size_t>(k)])] = c.of(static_cast<Change>(k));
  for (const Changed& one : c.changes) {
    json change{
        {"change", name(one.change)}, {"id", one.id}, {"before", as_json(one.before)}, {"after", as_json(one.after)}};
    if (!one.id_before.empty()) change["id_before"] = one.id_before;
    out["changes"].push_back(std::move(change));
  }
  for (const Slower& s : c.slower)
    out["slower"].push_back(
        {{"group", s.group}, {"cases", s.cases}, {"slow", s.slow}, {"ratio", s.ratio}, {"others", s.others}});
  for (const Mapping& m : c.mapped)
    out["mapped"].push_back(
        {{"axis", m.axis}, {"before", m.before}, {"after", m.after}, {"cases", m.cases}, {"found", m.found}});
  for (const store::Difference& d : c.differs)
    out["differences"].push_back({{"name", d.name}, {"before", d.before}, {"after", d.after}});
  return out;
}

}  // namespace kvcts::report
