// Answers from many nights, for people and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "case/tries.hpp"
#include "cli/history/answers.hpp"
#include "cli/report/compare.hpp"
#include "cli/report/text.hpp"

namespace kvcts::history {
namespace {

using report::plural;
using report::thousands;
using report::visible;
using store::Mark;

constexpr std::size_t ids_shown = 5, nights_shown = 60;

std::string tail_of(const std::string& strip) {
  return strip.size() > nights_shown ? strip.substr(strip.size() - nights_shown) : strip;
}

std::string difference_text(const History::Run& before, const History::Run& after) {
  return report::difference_text(store::differences(before.info, after.info));
}

std::string rate_text(std::int64_t failed, std::int64_t nights) {
  const Rate rate = wilson(failed, nights);
  return fmt::format("{} of {} nights fail ({:.0f} to {:.0f} %)", failed, nights, 100 * rate.low, 100 * rate.high);
}

/// A heading and the cases below it.
struct Block {
  std::string heading, note;
  std::vector<std::string> lines;
};

std::string blocks_text(const std::string& title, std::size_t count, const std::vector<Block>& blocks) {
  if (count == 0) return "";
  std::string out = fmt::format("\n{} ({})\n", title, thousands(static_cast<std::int64_t>(count)));
  for (const Block& block : blocks) {
    out += fmt::format("  {}\n", visible(block.heading));
    if (!block.note.empty()) out += fmt::format("    differ  {}\n", visible(block.note));
    for (std::size_t i = 0; i < block.lines.size() && i < ids_shown; ++i)
      out += fmt::format("    {}\n", visible(block.lines[i]));
    if (block.lines.size() > ids_shown) out += fmt::format("    and {} more\n", block.lines.size() - ids_shown);
  }
  return out;
}

std::vector<Block> blocks_of(const Answers& found, const std::vector<New>& fresh) {
  std::vector<Block> out;
  std::map<std::tuple<std::size_t, std::size_t, std::string>, std::size_t> place;
  for (const New& one : fresh) {
    const auto [at, is_new] = place.try_emplace({one.bad, one.good, one.ending}, out.size());
    if (is_new) {
      const History::Run &good = found.runs[one.good], &bad = found.runs[one.bad];
      out.push_back(
          {fmt::format("since {}, last good {}: {}", day(bad), day(good), one.ending), difference_text(good, bad), {}});
    }
    out[at->second].lines.push_back(tail_of(one.strip) + "  " + one.id);
  }
  return out;
}

/// Cases that failed in the same nights are one line.
std::vector<Block> blocks_of(const std::vector<Flaky>& flaky) {
  std::vector<Block> out;
  std::map<std::pair<std::string, std::string>, std::size_t> place;
  for (const Flaky& one : flaky) {
    const auto [at, is_new] = place.try_emplace({one.strip, one.ending}, out.size());
    if (is_new) out.push_back({fmt::format("{}: {}", rate_text(one.failed, one.nights), one.ending), "", {}});
    out[at->second].lines.push_back(tail_of(one.strip) + "  " + one.id);
  }
  return out;
}

std::vector<Block> blocks_of(const Answers& found, const std::vector<SlowCase>& slow) {
  std::vector<Block> out;
  for (const SlowCase& one : slow) {
    const History::Run& first = found.runs[one.since];
    out.push_back({fmt::format("since {}: {}{:.2f} x the time, {}", day(first), one.group.empty() ? "" : one.group + ": ",
                               one.ratio, plural(std::ssize(one.ids), "case")),
                   one.since > 0 ? difference_text(found.runs[one.since - 1], first) : "", one.ids});
  }
  return out;
}

std::string span(const std::vector<History::Run>& runs) {
  if (runs.empty()) return "no runs";
  const bool one_suite =
      std::all_of(runs.begin(), runs.end(), [&](const History::Run& run) { return run.info.suite == runs[0].info.suite; });
  return fmt::format("{}{}, {} to {}", plural(std::ssize(runs), "run"), one_suite ? " of " + runs[0].info.suite : "",
                     day(runs.front()), day(runs.back()));
}

std::int64_t typical_ns(const std::vector<Point>& points, std::size_t first, std::size_t end) {
  std::vector<std::int64_t> ns;
  for (std::size_t i = first; i < end; ++i)
    if (points[i].ns > 0) ns.push_back(points[i].ns);
  if (ns.empty()) return 0;
  std::nth_element(ns.begin(), ns.begin() + std::ssize(ns) / 2, ns.end());
  return ns[ns.size() / 2];
}

}  // namespace

std::string day(const History::Run& run) { return store::utc(run.info.started_ms).substr(0, 10); }

std::string story(const CaseHistory& one, const std::vector<History::Run>& runs) {
  std::vector<Point> ran;
  for (const Point& p : one.points)
    if (p.mark != Mark::not_run) ran.push_back(p);
  std::string out =
      fmt::format("case      {}\nruns      {} of {}, {} to {}\n          {}\n", one.id, one.points.size(), runs.size(),
                  day(runs[one.points.front().run]), day(runs[one.points.back().run]), tail_of(strip(one.points)));
  std::int64_t failed = 0, flips = 0;
  std::map<std::string, std::int64_t> endings;
  const auto bad = [](const Point& p) { return p.mark == Mark::bad || p.mark == Mark::flaky; };
  for (std::size_t i = 0; i < ran.size(); ++i) {
    failed += bad(ran[i]), flips += i > 0 && bad(ran[i]) != bad(ran[i - 1]);
    if (!ran[i].ending.empty()) ++endings[ran[i].ending];
  }
  if (ran.empty()) return out + "it ran in none of them\n";
  out += fmt::format("failures  {}, {}\n", rate_text(failed, std::ssize(ran)), plural(flips, "flip"));
  for (const auto& [ending, count] : endings) out += fmt::format("          {} x {}\n", count, ending);
  std::size_t streak = 0;
  while (streak < ran.size() && bad(ran[ran.size() - 1 - streak])) ++streak;
  if (streak > 0 && streak < ran.size()) {
    const History::Run &good = runs[ran[ran.size() - streak - 1].run], &first = runs[ran[ran.size() - streak].run];
    out += fmt::format("bad since {}, last good {}\n", day(first), day(good));
    if (const std::string words = difference_text(good, first); !words.empty()) out += fmt::format("differ    {}\n", words);
  }
  const std::size_t recent = ran.size() - std::min<std::size_t>(5, ran.size());
  if (const auto now = typical_ns(ran, recent, ran.size()), before = typical_ns(ran, 0, recent); now > 0)
    out += fmt::format("time      {} in the last {}{}\n", report::duration(now),
                       plural(std::ssize(ran) - static_cast<std::int64_t>(recent), "run"),
                       before > 0 ? fmt::format(", {} before", report::duration(before)) : "");
  return out;
}

std::string text(const Answers& found, const std::string& only) {
  std::string out = fmt::format("{}, {}\n", span(found.runs), plural(found.cases, "case"));
  std::string tally;
  const auto part = [&](const char* kind, const char* word, std::size_t count, const std::vector<Block>& blocks) {
    if (!only.empty() && only != kind) return;
    out += blocks_text(kind, count, blocks);
    if (count > 0)
      tally += fmt::format("{}{} {}", tally.empty() ? "" : ", ", thousands(static_cast<std::int64_t>(count)), word);
  };
  std::size_t slow = 0;
  for (const SlowCase& one : found.slow) slow += one.ids.size();
  part("new", "newly failing", found.fresh.size(), blocks_of(found, found.fresh));
  part("flaky", "flaky", found.flaky.size(), blocks_of(found.flaky));
  part("slow", "slower", slow, blocks_of(found, found.slow));
  out += fmt::format("\n{}", tally.empty() ? fmt::format("nothing {}", only.empty() ? "changed" : "is " + only) : tally);
  return out + (found.always > 0 ? fmt::format("; {} failing since the first run", thousands(found.always)) : "") + "\n";
}

nlohmann::json to_json(const Answers& found) {
  using nlohmann::json;
  const auto at = [&](std::size_t run) { return store::utc(found.runs[run].info.started_ms); };
  json out{{"format", "kvcts-history"},      {"version", 1},         {"runs", found.runs.size()}, {"cases", found.cases},
           {"always_failing", found.always}, {"new", json::array()}, {"flaky", json::array()},    {"slow", json::array()}};
  for (const New& one : found.fresh) {
    json differ = json::array();
    for (const store::Difference& d : store::differences(found.runs[one.good].info, found.runs[one.bad].info))
      differ.push_back({{"name", d.name}, {"before", d.before}, {"after", d.after}});
    out["new"].push_back({{"id", one.id},
                          {"ending", one.ending},
                          {"last_good", at(one.good)},
                          {"first_bad", at(one.bad)},
                          {"strip", one.strip},
                          {"differences", differ}});
  }
  for (const Flaky& one : found.flaky)
    out["flaky"].push_back(
        {{"id", one.id}, {"ending", one.ending}, {"failed", one.failed}, {"runs", one.nights}, {"strip", one.strip}});
  for (const SlowCase& one : found.slow)
    out["slow"].push_back({{"group", one.group}, {"since", at(one.since)}, {"ratio", one.ratio}, {"ids", one.ids}});
  return out;
}

nlohmann::json to_json(const CaseHistory& one, const std::vector<History::Run>& runs) {
  nlohmann::json out{{"format", "kvcts-history"}, {"version", 1}, {"id", one.id}, {"points", nlohmann::json::array()}};
  for (const Point& p : one.points)
    out["points"].push_back({{"started", store::utc(runs[p.run].info.started_ms)},
                             {"host", runs[p.run].info.provenance.value("host", "")},
                             {"mark", std::string(1, static_cast<char>(p.mark))},
                             {"ending", p.ending},
                             {"ns", p.ns},
                             {"tries", {{"made", p.made}, {"failed", p.failed}}}});
  return out;
}

}  // namespace kvcts::history
