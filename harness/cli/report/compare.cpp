#include "cli/report/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, change_count> names{
    "newly failing",           "newly flaky", "other cause", "newly skipped", "vanished", "other evidence",
    "flaky, passed this time", "fixed",       "new",         "renamed"};

constexpr std::int64_t least_cases = 10;
constexpr double least_ratio = 1.2, least_ratio_of_all = 1.5, least_errors = 6;

/// What a comparison needs of a row; whole rows of a long run would not fit.
struct Case {
  std::string id, digest;
  Section section{};
  bool flaky{false};
  Standing standing;
  std::int64_t own_ns{0};  ///< 0: did not pass, or shares another case's execution
  std::vector<std::string> groups;
};

bool fails(Section section) { return section == Section::failed || section == Section::suite_error; }
bool has_not_run(Section section) {
  return section == Section::skipped || section == Section::not_run || section == Section::unsupported;
}

Case case_of(const store::Row& row) {
  const CaseResult& r = row.result;
  Case out{row.planned.id, row.planned.digest, section_of(row), r.outcome == Outcome::flaky, {}, 0, {}};
  out.standing = {row.decided ? ending_words(r) : "absent",
                  std::string(name(r.verdict)),
                  has_not_run(out.section) || !row.decided ? "" : std::string(name(r.evidence)),
                  r.diagnosis.fault_class,
                  r.message,
                  r.tries};
  if (out.section == Section::fine && r.outcome == Outcome::pass && row.executions > 0) out.own_ns = r.wall_ns;
  if (const auto axes = r.facts.find("axes"); out.own_ns > 0 && axes != r.facts.end()) {
    for (const char* axis : {"engine", "connector", "op", "dtype"}) {
      const auto value = axes->find(axis);
      if (value != axes->end() && value->is_string())
        out.groups.push_back(fmt::format("{} {}", axis, value->get<std::string>()));
    }
  }
  return out;
}

std::vector<Case> cases_of(const store::RunReader& reader) {
  std::vector<Case> out;
  reader.for_each([&](const store::Row& row) { out.push_back(case_of(row)); });
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

std::optional<Change> change_of(const Case* before, const Case& after) {
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
  if (before->id != after.id) return Change::renamed;
  return std::nullopt;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// Spread of the values about their median, as a standard deviation where they are normal.
double spread(const std::vector<double>& values, double about) {
  std::vector<double> off;
  for (const double value : values) off.push_back(std::abs(value - about));
  return 1.4826 * median(std::move(off));
}

/// Logarithms of ratios of times, all and by group.
class Pace {
 public:
  void add(const Case& before, const Case& after) {
    if (before.own_ns == 0 || after.own_ns == 0 || before.digest != after.digest) return;
    const double ratio = std::log(static_cast<double>(after.own_ns) / static_cast<double>(before.own_ns));
    all_.push_back(ratio);
    for (const std::string& group : after.groups) groups_[group].push_back(ratio);
  }
  double of_all() const { return all_.empty() ? 0 : median(all_); }
  std::vector<Slower> slower() const {
    std::vector<Slower> out;
    if (std::ssize(all_) < least_cases) return out;
    const double pace = of_all(), wide = spread(all_, pace);
    const auto look = [&](const std::string& group, const std::vector<double>& values, double against, double least) {
      if (std::ssize(values) < least_cases) return;
      const double middle = median(values), beyond = middle - against;
      const double error = 1.2533 * std::max(wide, spread(values, middle)) / std::sqrt(static_cast<double>(values.size()));
      if (std::exp(beyond) >= least && beyond >= least_errors * error)
        out.push_back({group, std::ssize(values), std::exp(beyond)});
    };
    look("all cases", all_, 0, least_ratio_of_all);
    for (const auto& [group, values] : groups_) {
      if (values.size() < all_.size()) look(group, values, pace, least_ratio);
    }
    return out;
  }

 private:
  std::vector<double> all_;
  std::map<std::string, std::vector<double>> groups_;
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

Comparison compare(const store::RunReader& before, const store::RunReader& after) {
  Comparison out{before.info(), after.info(), {}, {}, 0, 0, 0, 1};
  if (out.before.suite != out.after.suite)
    throw store::Error(
        fmt::format("expected two runs of one suite, found '{}' and '{}'", out.before.suite, out.after.suite));
  const std::vector<Case> old = cases_of(before), now = cases_of(after);
  std::unordered_map<std::string_view, const Case*> by_id;
  std::unordered_map<std::string_view, std::vector<const Case*>> gone;  // by digest
  for (const Case& c : old) by_id[c.id] = &c;
  std::unordered_set<std::string_view> there;
  for (const Case& c : now) there.insert(c.id);
  for (const Case& c : old) {
    if (!there.contains(c.id)) gone[c.digest].push_back(&c);
  }
  Pace pace;
  for (const Case& c : now) {
    const auto found = by_id.find(c.id);
    const Case* was = found == by_id.end() ? nullptr : found->second;
    if (auto same = gone.find(c.digest); !was && same != gone.end() && !same->second.empty()) {
      was = same->second.front();
      same->second.erase(same->second.begin());
    }
    if (was) pace.add(*was, c);
    const auto change = change_of(was, c);
    if (change == Change::added && out.before.left_out > 0) {
      ++out.only_one;
      continue;
    }
    if (!change) {
      ++out.alike;
      out.still_failing += fails(c.section);
      continue;
    }
    out.changes.push_back({*change, c.id, was && was->id != c.id ? was->id : "",
                           was ? std::optional(was->standing) : std::nullopt, c.standing});
  }
  for (const Case& c : old) {
    const auto left = gone.find(c.digest);
    if (left == gone.end() || std::find(left->second.begin(), left->second.end(), &c) == left->second.end()) continue;
    if (out.after.left_out > 0)
      ++out.only_one;
    else
      out.changes.push_back({Change::vanished, c.id, "", c.standing, std::nullopt});
  }
  std::stable_sort(out.changes.begin(), out.changes.end(),
                   [](const Changed& x, const Changed& y) { return x.change < y.change; });
  out.slower = pace.slower();
  out.pace = std::exp(pace.of_all());
  return out;
}

json to_json(const Comparison& c) {
  json out{{"format", "kvcts-compare"}, {"version", 1},           {"before", as_json(c.before)},
           {"after", as_json(c.after)}, {"alike", c.alike},       {"still_failing", c.still_failing},
           {"only_one", c.only_one},    {"pace", c.pace},         {"counts", json::object()},
           {"changes", json::array()},  {"slower", json::array()}};
  for (int k = 0; k < change_count; ++k)
    out["counts"][std::string(names[static_cast<std::size_t>(k)])] = c.of(static_cast<Change>(k));
  for (const Changed& one : c.changes) {
    json change{
        {"change", name(one.change)}, {"id", one.id}, {"before", as_json(one.before)}, {"after", as_json(one.after)}};
    if (!one.id_before.empty()) change["id_before"] = one.id_before;
    out["changes"].push_back(std::move(change));
  }
  for (const Slower& s : c.slower) out["slower"].push_back({{"group", s.group}, {"cases", s.cases}, {"ratio", s.ratio}});
  return out;
}

}  // namespace kvcts::report
