// The pages of many pairs: OUT/index.html and OUT/pairs.json.
#include <fmt/format.h>

#include <map>

#include "cli/hosts/pairs.hpp"
#include "cli/report/template.hpp"
#include "cli/report/text.hpp"
#include "cli/report/whole_file.hpp"

namespace kvcts::cli::hosts {

using nlohmann::json;
using report::escaped;

namespace {

/// A pair's own page, or its log where it left none.
std::string link_of(const Pairs& pairs, const PairRun& run) {
  return std::filesystem::exists(pairs.out / run.name / "index.html") ? run.name + "/index.html" : run.name + ".log";
}

std::string counts_of(const PairRun& run) {
  if (!run.counts) return run.failed() ? "no run" : "passed";
  const auto bad = store::failures(*run.counts);
  return bad > 0 ? fmt::format("{}/{}", bad, run.counts->planned) : report::thousands(store::ran(*run.counts));
}

std::string cell(const Pairs& pairs, const PairRun* run) {
  if (run == nullptr) return "<td class=\"empty\"></td>";
  const bool bad = run->failed();
  return fmt::format("<td class=\"{} e-compiled\"><a href=\"{}\" title=\"{}\">{} {}</a></td>", bad ? "v-failed" : "v-pass",
                     escaped(link_of(pairs, *run)), escaped(run->words), bad ? "✗" : "✓", escaped(counts_of(*run)));
}

std::string matrix(const Pairs& pairs) {
  std::map<Link, const PairRun*> shown;  // of several runs a failure
  for (const PairRun& run : pairs.runs)
    if (const PairRun*& known = shown[run.pair]; known == nullptr || !known->failed()) known = &run;
  std::string out = "<thead><tr><td></td>";
  for (const std::string& host : pairs.hosts) out += "<th scope=\"col\"><span>" + escaped(host) + "</span></th>";
  out += "</tr></thead>\n<tbody>\n";
  for (int row = 0; row < std::ssize(pairs.hosts); ++row) {
    out += "<tr><th scope=\"row\">" + escaped(pairs.hosts[static_cast<std::size_t>(row)]) + "</th>";
    for (int column = 0; column < std::ssize(pairs.hosts); ++column) {
      const auto found = shown.find({row, column});
      out += cell(pairs, found == shown.end() ? nullptr : found->second);
    }
    out += "</tr>\n";
  }
  return out + "</tbody>\n";
}

std::string rows(const Pairs& pairs) {
  std::string out;
  for (const PairRun& run : pairs.runs)
    if (run.failed())
      out += fmt::format(
          "<tr class=\"bad\"><th scope=\"row\"><a href=\"{}\">{}</a></th><td>{}</td><td "
          "class=\"n\">{}</td><td><code>{}</code></td></tr>\n",
          escaped(link_of(pairs, run)), escaped(pairs.name(run.pair)), escaped(run.words), run.round,
          escaped(pairs.command(run.pair)));
  return out.empty() ? "<tr><td colspan=\"4\">none</td></tr>\n" : out;
}

}  // namespace

json to_json(const Pairs& pairs) {
  const auto names = [&](const Link& link) {
    return json{pairs.hosts[static_cast<std::size_t>(link.first)], pairs.hosts[static_cast<std::size_t>(link.second)]};
  };
  json out{{"hosts", pairs.hosts},   {"headline", pairs.headline()},       {"next", pairs.next_step()},
           {"complete", pairs.over}, {"exit_status", pairs.exit_status()}, {"rounds", pairs.rounds},
           {"pairs", json::array()}};
  for (const PairRun& run : pairs.runs) {
    out["pairs"].push_back({{"producer", names(run.pair)[0]},
                            {"consumer", names(run.pair)[1]},
                            {"round", run.round},
                            {"run", run.name},
                            {"exit_status", run.exit},
                            {"failed", run.failed()},
                            {"headline", run.words}});
    if (run.counts)
      out["pairs"].back().update(
          {{"planned", run.counts->planned}, {"ran", store::ran(*run.counts)}, {"failures", store::failures(*run.counts)}});
  }
  if (pairs.found) {
    json found{{"hosts", json::array()},
               {"links", json::array()},
               {"not_certain", json::array()},
               {"links_tested", pairs.found->tested}};
    for (const int host : pairs.found->hosts) found["hosts"].push_back(pairs.hosts[static_cast<std::size_t>(host)]);
    for (const Link& link : pairs.found->links) found["links"].push_back(names(link));
    for (const Link& link : pairs.found->open) found["not_certain"].push_back(names(link));
    out["found"] = found;
  }
  return out;
}

void write_pages(const Pairs& pairs) {
  const char* advice = "free some space there";
  report::WholeFile data(pairs.out / "pairs.json", "results", advice);
  data.out() << to_json(pairs).dump(1) << '\n';
  data.keep();
  report::WholeFile page(pairs.out / "index.html", "page", advice);
  const bool good = pairs.over && pairs.exit_status() == 0;
  page.out() << report::fill(report::pairs_template(), {{"style", std::string(report::page_style())},
                                                        {"state", good                   ? "good"
                                                                  : pairs.failures() > 0 ? "bad"
                                                                                         : ""},
                                                        {"verdict", pairs.headline()},
                                                        {"next", pairs.next_step()},
                                                        {"hosts", report::plural(std::ssize(pairs.hosts), "host")},
                                                        {"matrix", matrix(pairs)},
                                                        {"failed", rows(pairs)}});
  page.keep();
}

}  // namespace kvcts::cli::hosts
