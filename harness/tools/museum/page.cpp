// reports/museum.md: figures by system and by class, and every entry with how it ends.
#include <fmt/format.h>

#include <algorithm>

#include "tools/museum/museum.hpp"

namespace kvcts::museum {

namespace {

// A '|' would end the cell.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

/// Rows of entries that share something, most entries first.
template <class Key>
std::string figures(const std::vector<Exhibit>& exhibits, const Endings& endings, const std::string& head, Key&& key) {
  std::map<std::string, std::vector<Exhibit>> groups;
  for (const Exhibit& e : exhibits) groups[key(e)].push_back(e);
  std::vector<std::pair<std::string, Tally>> rows;
  for (const auto& [name, group] : groups) rows.emplace_back(name, tally(group, endings));
  const auto entries = [](const Tally& t) { return t.confirmed.entries + t.partial.entries; };
  std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) { return entries(a.second) > entries(b.second); });
  rows.emplace_back("**all**", tally(exhibits, endings));
  std::string out = fmt::format("| {} | entries | confirmed | expressed | caught | named | controls |\n| --- | --- | --- | --- | --- | --- | --- |\n", head);
  for (const auto& [name, t] : rows) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} of {} |\n", name, entries(t), t.confirmed.entries, t.confirmed.expressed + t.partial.expressed,
                       t.confirmed.caught + t.partial.caught, t.confirmed.named + t.partial.named, t.controls_good, t.controls);
  }
  return out;
}

}  // namespace

std::string page(const std::vector<Exhibit>& exhibits, const Endings& endings) {
  const Tally all = tally(exhibits, endings);
  std::string out = fmt::format(
      "# The museum of published faults\n\n"
      "{} faults of KV caches from public reports. For {} of them the report says which bytes, ids or shapes are wrong (*confirmed*), for {} it says\n"
      "less (*partial*). Each is a scripted case in `cases/museum/`, with controls that must pass, or has a line there that says why it cannot be\n"
      "one. The cases tell what was reported; nobody ran the reported programs, so all of this is *modelled*. *Caught*: the suite does not say\n"
      "PASS. *Named*: the diagnosis, which does not see what the case did wrong, gives the class that heads the report in `cases/museum/index`\n"
      "([which class comes first](precedence.md)).\n\n"
      "This page is what `kvcts museum --page` prints; a test holds it to that. `kvcts repro museum/m012-kvcached-391` runs one entry phase by phase.\n\n",
      exhibits.size(), all.confirmed.entries, all.partial.entries);
  out += "```text\n" + summary(all);
  const auto lacks = missed(all, true);
  out += lacks.empty() ? "targets    met\n" : fmt::format("targets    missed: {}\n", fmt::join(lacks, "; "));
  out += "```\n\n## By class\n\n" + figures(exhibits, endings, "class", [](const Exhibit& e) { return e.entry.fault_class; });
  out += "\n## By system\n\n" + figures(exhibits, endings, "system", [](const Exhibit& e) { return e.entry.system; });

  std::map<std::string, std::vector<const Exhibit*>> systems;
  for (const Exhibit& e : exhibits) systems[e.entry.system].push_back(&e);
  out += "\n## Every entry\n";
  for (const auto& [system, of] : systems) {
    out += fmt::format("\n### {}\n\n| entry | report | date | version | class | what | ends | controls |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n", system);
    for (const Exhibit* e : of) {
      const Standing s = judge(*e, endings);
      std::string what = e->expressed() ? e->cases.front().title : e->not_expressed;
      std::string ending = s.ending;
      if (e->expressed() && !s.caught) ending = "**missed**: " + ending;
      else if (e->expressed() && !s.named) ending = "**misnamed**: " + ending;
      out += fmt::format("| {}{} | [{}]({}) | {} | {} | {} | {} | {} | {} |\n", e->entry.id, e->entry.data == "partial" ? " (partial)" : "", e->entry.report,
                         e->link(), e->entry.date, cell(e->entry.version), e->entry.fault_class, cell(what), cell(ending),
                         e->expressed() ? fmt::format("{} of {}", s.controls_good, s.controls) : "");
    }
  }
  return out;
}

}  // namespace kvcts::museum
