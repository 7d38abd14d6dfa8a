#include "cli/history/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "cli/report/pace.hpp"
#include "cli/report/text.hpp"

namespace kvcts::history {
namespace {

using report::escaped;
using report::thousands;
using store::Mark;

constexpr std::size_t nights_drawn = 30, strips_kept = 2000;
constexpr int cell = 10, height = 40;

/// The cases of one engine in one night.
struct Tally {
  std::int64_t good{0}, bad{0}, flaky{0}, not_run{0};
  std::vector<double> ratios;  ///< of times to the case's own median
  std::int64_t all() const { return good + bad + flaky + not_run; }
};
using Trend = std::vector<Tally>;

void count(Tally& tally, const Point& p, double own_median) {
  switch (p.mark) {
    case Mark::bad:
      ++tally.bad;
      break;
    case Mark::flaky:
      ++tally.flaky;
      break;
    case Mark::not_run:
      ++tally.not_run;
      break;
    default:
      ++tally.good;
  }
  if (p.ns > 0 && own_median > 0) tally.ratios.push_back(static_cast<double>(p.ns) / own_median);
}

/// How a night's cases ended: a bar of four parts; failures are seen, however few.
std::string bars(const Trend& trend, const std::vector<History::Run>& runs, std::size_t first) {
  std::int64_t most = 1;
  for (const Tally& night : trend) most = std::max(most, night.all());
  std::string out;
  for (std::size_t i = 0; i < trend.size(); ++i) {
    const Tally& night = trend[i];
    const std::array parts{std::pair{'b', night.bad}, std::pair{'f', night.flaky}, std::pair{'n', night.not_run},
                           std::pair{'g', night.good}};
    double top = height;
    for (const auto& [kind, n] : parts) {
      if (n == 0) continue;
      double tall = height * static_cast<double>(n) / static_cast<double>(most);
      if (kind == 'b' || kind == 'f') tall = std::max(tall, 3.0);
      tall = std::min(tall, top);
      top -= tall;
      out += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\"/>", kind,
                         static_cast<int>(i) * cell, top, cell - 1, tall);
    }
    out += fmt::format(
        "<rect class=\"hit\" x=\"{}\" y=\"0\" width=\"{}\" height=\"{}\"><title>{}: {} good, {} failed, {} flaky, {} not "
        "run</title></rect>",
        static_cast<int>(i) * cell, cell, height, day(runs[first + i]), thousands(night.good), thousands(night.bad),
        thousands(night.flaky), thousands(night.not_run));
  }
  return out;
}

/// A night's pace, from half to twice the usual; beyond is drawn at the edge.
std::string line(const Trend& trend, const std::vector<History::Run>& runs, std::size_t first) {
  std::string points, dots;
  for (std::size_t i = 0; i < trend.size(); ++i) {
    if (trend[i].ratios.empty()) continue;
    const double pace = report::median(trend[i].ratios);
    const double y = height / 2.0 * (1 - std::clamp(std::log2(pace), -1.0, 1.0));
    const int x = static_cast<int>(i) * cell + cell / 2;
    points += fmt::format("{}{},{:.1f}", points.empty() ? "" : " ", x, y);
    dots += fmt::format("<circle cx=\"{}\" cy=\"{:.1f}\" r=\"2.5\"><title>{}: {:.2f} x the usual time</title></circle>", x,
                        y, day(runs[first + i]), pace);
  }
  return fmt::format("<line x1=\"0\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\"/><polyline points=\"{2}\"/>{3}", height / 2,
                     static_cast<int>(trend.size()) * cell, points, dots);
}

std::string drawing(const std::string& kind, const std::string& label, std::size_t nights, const std::string& content) {
  return fmt::format(
      "<svg class=\"{}\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\">{}</svg>", kind,
      escaped(label), static_cast<int>(nights) * cell, height, static_cast<int>(nights) * cell, height, content);
}

std::string trend_row(const std::string& engine, const Trend& trend, const std::vector<History::Run>& runs,
                      std::size_t first) {
  const Tally& last = trend.back();
  const double pace = last.ratios.empty() ? 0 : report::median(last.ratios);
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n{}\">{}</td><td "
      "class=\"n\">{}</td></tr>\n",
      escaped(engine),
      drawing("nights", fmt::format("{}: {} of {} good in the last night", engine, last.good, last.all()), trend.size(),
              bars(trend, runs, first)),
      drawing("pace", fmt::format("{}: {:.2f} times the usual time in the last night", engine, pace), trend.size(),
              line(trend, runs, first)),
      thousands(last.good), last.bad + last.flaky > 0 ? " hot" : " zero", thousands(last.bad + last.flaky),
      pace > 0 ? fmt::format("{:.2f} x", pace) : "");
}

}  // namespace

report::Nights nights_before(const History& history, const store::RunInfo& run) {
  report::Nights out;
  const std::vector<History::Run> runs = history.runs(run.suite, run.started_ms);
  if (runs.empty()) return out;
  const std::size_t first = runs.size() - std::min(runs.size(), nights_drawn), shown = runs.size() - first;
  std::map<std::string, Trend> engines;
  Trend all(shown);
  history.for_each(run.suite, run.started_ms, [&](const CaseHistory& one) {
    std::vector<double> times;
    std::string letters(shown, ' ');
    for (const Point& p : one.points)
      if (p.ns > 0) times.push_back(static_cast<double>(p.ns));
    const double own = times.empty() ? 0 : report::median(std::move(times));
    const nlohmann::json engine = axes_of(one).value("engine", nlohmann::json("other"));
    Trend& trend = engines.try_emplace(engine.is_string() ? engine.get<std::string>() : engine.dump(), shown).first->second;
    for (const Point& p : one.points) {
      if (p.run < first) continue;
      letters[p.run - first] = static_cast<char>(p.mark);
      count(trend[p.run - first], p, own);
      count(all[p.run - first], p, own);
    }
    const bool notable = letters.find_first_of("F~x") != std::string::npos;
    if (notable && out.strips.size() < strips_kept) out.strips.emplace(one.id, letters);
  });
  const std::string columns =
      "<th scope=\"col\">Cases by night</th><th scope=\"col\">Pace</th><th scope=\"col\" class=\"n\">Good</th><th "
      "scope=\"col\" class=\"n\">Failed</th><th scope=\"col\" class=\"n\">Time</th>";
  std::string rows = trend_row("all", all, runs, first);
  for (const auto& [engine, trend] : engines)
    if (engines.size() > 1 && std::any_of(trend.begin(), trend.end(), [](const Tally& t) { return t.all() > 0; }))
      rows += trend_row(engine, trend, runs, first);
  std::istringstream lines(text(answers(history, 0, run.suite, run.started_ms), ""));
  std::string story, one;
  std::getline(lines, one);  // which nights: the section says so
  while (std::getline(lines, one)) story += story.empty() && one.empty() ? "" : escaped(one) + "\n";
  out.markup = fmt::format(
      "<section aria-labelledby=\"nights\"><h2 id=\"nights\">Nights <span class=\"count\">{}</span></h2>\n<p "
      "class=\"lead\">The last {}, to {}. "
      "Pace: the median of the cases' times, each by its own usual time; the line is 1 x, the edges half and twice.</p>\n"
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Trend\"><table class=\"trend\"><thead><tr><th "
      "scope=\"col\">Engine</th>{}</tr></thead>"
      "<tbody>\n{}</tbody></table></div>\n<pre class=\"told\">{}</pre></section>\n",
      thousands(std::ssize(runs)), report::plural(static_cast<std::int64_t>(shown), "night"), day(runs.back()), columns,
      rows, story);
  return out;
}

}  // namespace kvcts::history
