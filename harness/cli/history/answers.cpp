#include "cli/history/answers.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "case/tries.hpp"
#include "cli/report/pace.hpp"

namespace kvcts::history {
namespace {

using report::median;
using store::Mark;

constexpr std::size_t least_before = 5, least_after = 5, most_nights = 60;
constexpr double least_ratio = 1.3, least_share = 0.85, chance_of_new = 0.01, chance_of_slow = 0.01;
constexpr std::size_t short_streak = 2;

bool ran(const Point& p) { return p.mark != Mark::not_run; }
bool fails(const Point& p) { return p.mark == Mark::bad || p.mark == Mark::flaky; }

/// Failing nights at the end, and what came before.
struct Ending {
  std::size_t streak{0};
  std::int64_t failed_before{0}, nights_before{0};
  std::size_t short_streaks{0};  ///< of failures that ended by themselves
};

Ending ending_of(const std::vector<const Point*>& nights) {
  Ending out;
  while (out.streak < nights.size() && nights[nights.size() - 1 - out.streak]->mark == Mark::bad) ++out.streak;
  const std::size_t before = nights.size() - out.streak;
  std::size_t run = 0;
  for (std::size_t i = 0; i < before; ++i) {
    ++out.nights_before;
    out.failed_before += fails(*nights[i]);
    if (nights[i]->mark == Mark::flaky) ++out.short_streaks;
    if (nights[i]->mark == Mark::bad) {
      ++run;
    } else {
      if (run > 0 && run <= short_streak && i > run) ++out.short_streaks;
      run = 0;
    }
  }
  return out;
}

/// Times of a case, night by night, as logarithms; and where it became slower.
struct Series {
  std::string id;
  nlohmann::json axes;
  std::vector<std::size_t> runs;
  std::vector<double> values;
};

/// At least `hits` of `nights` by chance, where each has the probability p.
double tail(std::size_t hits, std::size_t nights, double p) {
  double out = 0, term = std::pow(p, static_cast<double>(nights));
  for (std::size_t k = nights; k + 1 > hits; --k) {
    out += term;
    if (k == 0) break;
    term *= static_cast<double>(k) / static_cast<double>(nights - k + 1) * (1 - p) / p;
  }
  return out;
}

/// The first slow night: an index into the series.
std::optional<std::size_t> slower_since(const Series& s, double cases) {
  const auto typical = [&](std::size_t first) {
    const auto at = s.values.begin() + static_cast<std::ptrdiff_t>(first);
    return median({at, at + least_before});
  };
  if (typical(s.values.size() - least_after) - typical(0) < std::log(least_ratio) / 2) return std::nullopt;  // most cases
  std::optional<std::size_t> best;
  double least = 0;
  for (std::size_t at = least_before; at + least_after <= s.values.size(); ++at) {
    const std::vector<double> before(s.values.begin(), s.values.begin() + static_cast<std::ptrdiff_t>(at)),
        after(s.values.begin() + static_cast<std::ptrdiff_t>(at), s.values.end());
    const double low = median(before), high = median(after);
    if (high - low < std::log(least_ratio)) continue;
    const auto beyond = [half = (low + high) / 2](const std::vector<double>& of) {
      return static_cast<std::size_t>(std::count_if(of.begin(), of.end(), [&](double v) { return v > half; }));
    };
    const std::size_t slow_before = beyond(before), slow_after = beyond(after);
    if (static_cast<double>(slow_after) < least_share * static_cast<double>(after.size())) continue;
    const double p = wilson(static_cast<std::int64_t>(slow_before), static_cast<std::int64_t>(before.size())).high;
    if (tail(slow_after, after.size(), p) * cases > chance_of_slow) continue;
    double cost = 0;
    for (const double v : before) cost += std::abs(v - low);
    for (const double v : after) cost += std::abs(v - high);
    if (!best || cost < least) best = at, least = cost;
  }
  return best;
}

/// Takes out of every night what all cases share in it, as far as they are not slower for a reason of their own.
void level(std::vector<Series>& all, const std::set<const Series*>& without, std::size_t nights) {
  std::vector<std::vector<double>> off(nights);
  for (const Series& s : all) {
    if (without.contains(&s)) continue;
    const double middle = median(s.values);
    for (std::size_t i = 0; i < s.runs.size(); ++i) off[s.runs[i]].push_back(s.values[i] - middle);
  }
  std::vector<double> pace;
  for (std::vector<double>& night : off) pace.push_back(night.empty() ? 0 : median(std::move(night)));
  for (Series& s : all)
    for (std::size_t i = 0; i < s.runs.size(); ++i) s.values[i] -= pace[s.runs[i]];
}

/// Cases that became slower, by their first slow run.
std::map<std::size_t, std::vector<Series*>> slower_cases(std::vector<Series>& all, std::size_t nights) {
  std::map<std::size_t, std::vector<Series*>> out;
  std::set<const Series*> found;
  for (int round = 0; round < 5; ++round) {  // what is found no longer blurs the pace of its nights
    level(all, found, nights);
    const std::size_t before = found.size();
    out.clear(), found.clear();
    for (Series& s : all)
      if (const auto at = slower_since(s, static_cast<double>(all.size()))) out[s.runs[*at]].push_back(&s), found.insert(&s);
    if (found.size() == before) break;
  }
  return out;
}

report::Times as_times(double log_ns) { return {static_cast<std::int64_t>(std::exp(log_ns) * 1e6), 0}; }

/// Its medians before a run and since then.
std::pair<double, double> split(const Series& s, std::size_t run) {
  const auto at = std::lower_bound(s.runs.begin(), s.runs.end(), run) - s.runs.begin();
  if (at == 0 || at == std::ssize(s.runs)) return {0, 0};
  return {median({s.values.begin(), s.values.begin() + at}), median({s.values.begin() + at, s.values.end()})};
}

/// The night that most have.
std::size_t most(const std::map<std::size_t, std::int64_t>& counts) {
  return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
}

std::vector<SlowCase> slower(std::vector<Series> all, std::size_t nights) {
  std::erase_if(all, [](const Series& s) { return s.values.size() < least_before + least_after; });
  if (all.empty()) return {};
  std::map<const Series*, std::size_t> since;  // not yet told
  std::map<std::size_t, std::int64_t> counts;
  for (const auto& [night, cases] : slower_cases(all, nights))
    for (const Series* s : cases) since[s] = night, ++counts[night];
  const std::map<const Series*, std::size_t> slow = since;
  std::vector<SlowCase> out;
  while (!since.empty()) {
    const std::size_t night = most(counts);
    // What the cases of that night share. Noise moves a case's own night: a group takes all of its cases.
    report::Pace pace;
    for (const Series& s : all) {
      const auto at = slow.find(&s);
      if (at != slow.end() && std::max(at->second, night) - std::min(at->second, night) > least_after) continue;
      const auto [before, after] = split(s, night);
      pace.add(as_times(before), as_times(after), pace.values(s.axes));
    }
    const auto take = [&](const std::string& group, const std::function<bool(const Series&, double)>& member) {
      SlowCase one{group, night, 1, {}};
      std::vector<double> ratios;
      std::map<std::size_t, std::int64_t> own;
      for (const Series& s : all) {
        const auto at = since.find(&s);
        if (at == since.end()) continue;
        const auto [before, after] = split(s, night);
        if (!member(s, after - before)) continue;
        one.ids.push_back(s.id), ratios.push_back(after - before), ++own[at->second];
        --counts[at->second];
        since.erase(at);
      }
      if (ratios.empty()) return;
      one.since = most(own), one.ratio = std::exp(median(ratios));
      out.push_back(std::move(one));
    };
    for (const report::Slower& group : pace.slower()) {
      const double half = std::log(group.ratio / group.others) / 2;
      take(group.group, [&](const Series& s, double ratio) {
        return ratio > half && std::ranges::all_of(group.values, [&](const auto& v) {
                 return s.axes.value(v.first, nlohmann::json()) == v.second;
               });
      });
    }
    take("", [&](const Series& s, double) { return since.at(&s) == night; });
  }
  std::ranges::stable_sort(out, std::greater(), &SlowCase::since);
  return out;
}

}  // namespace

nlohmann::json axes_of(const CaseHistory& one) {
  auto out = nlohmann::json::parse(one.axes.empty() ? "{}" : one.axes, nullptr, false);
  return out.is_object() ? out : nlohmann::json::object();
}

std::string strip(const std::vector<Point>& points) {
  std::string out;
  for (const Point& p : points) out += static_cast<char>(p.mark);
  return out;
}

Answers answers(const History& history, std::int64_t since_ms, const std::string& suite, std::int64_t until_ms) {
  Answers out;
  out.runs = history.runs(suite, until_ms);
  const std::size_t first_timed = out.runs.size() - std::min(out.runs.size(), most_nights);
  std::vector<Series> times;
  history.for_each(suite, until_ms, [&](const CaseHistory& one) {
    std::vector<const Point*> nights;
    for (const Point& p : one.points)
      if (ran(p)) nights.push_back(&p);
    if (nights.empty()) return;
    ++out.cases;
    const Ending end = ending_of(nights);
    const std::size_t before = nights.size() - end.streak;
    if (end.streak > 0 && before == 0) ++out.always;
    const double rate = wilson(end.failed_before, end.nights_before).high;
    const bool by_chance = end.short_streaks > 0 && std::pow(rate, static_cast<double>(end.streak)) >= chance_of_new;
    if (end.streak > 0 && before > 0 && !by_chance) {
      out.fresh.push_back({one.id, nights.back()->ending, nights[before - 1]->run, nights[before]->run, strip(one.points)});
    } else if (end.short_streaks > 0) {
      Flaky flaky{one.id, "", 0, 0, static_cast<std::int64_t>(nights.size()), strip(one.points)};
      for (const Point* p : nights)
        if (fails(*p)) ++flaky.failed, flaky.ending = p->ending, flaky.last = p->run;
      out.flaky.push_back(std::move(flaky));
    }
    Series series{one.id, axes_of(one), {}, {}};
    for (const Point* p : nights) {
      if (p->run < first_timed || p->ns <= 0) continue;
      series.runs.push_back(p->run), series.values.push_back(std::log(static_cast<double>(p->ns)));
    }
    if (!series.values.empty()) times.push_back(std::move(series));
  });
  out.slow = slower(std::move(times), out.runs.size());
  const auto before_that = [&](std::size_t run) { return out.runs[run].info.started_ms < since_ms; };
  std::erase_if(out.fresh, [&](const New& one) { return before_that(one.bad); });
  std::erase_if(out.flaky, [&](const Flaky& one) { return before_that(one.last); });
  std::erase_if(out.slow, [&](const SlowCase& one) { return before_that(one.since); });
  std::stable_sort(out.fresh.begin(), out.fresh.end(), [](const New& x, const New& y) { return x.bad > y.bad; });
  std::stable_sort(out.flaky.begin(), out.flaky.end(), [](const Flaky& x, const Flaky& y) { return x.failed > y.failed; });
  return out;
}

}  // namespace kvcts::history
