// A comparison for people: on the terminal, and as a section of the later run's page.
#include <fmt/format.h>

#include <algorithm>

#include "cli/report/compare.hpp"
#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

constexpr std::size_t causes_shown = 15, linked_shown = 20, differences_shown = 8;
constexpr double busy = 1.5;  // from here on, a run's pace is worth a line

std::string run_text(const store::RunInfo& info) {
  const std::string commit = info.provenance.value("commit", "");
  return fmt::format("{} of {}{}", info.suite, store::utc(info.started_ms), commit.empty() ? "" : ", " + commit);
}

/// What became of what.
std::string to_string(const Changed& c) {
  const std::string before = c.before ? c.before->ending : "", after = c.after ? c.after->ending : "";
  switch (c.change) {
    case Change::other_evidence:
      return fmt::format("{} -> {}", c.before->evidence.empty() ? "none" : c.before->evidence,
                         c.after->evidence.empty() ? "none" : c.after->evidence);
    case Change::renamed:
      return "was " + c.id_before;
    case Change::vanished:
      return "was " + before;
    case Change::added:
      return after;
    case Change::flaky_passed:
      return fmt::format("{}, then {}", tries_text(c.before->tries), after);
    default:
      return before.empty() ? after : before + " -> " + after;
  }
}

/// Cases that changed in the same way: for people one line.
struct CauseGroup {
  std::string words;  ///< "PASS -> FAIL axis-permuted: e.g. 31 wrong bytes"; "" of renamed ones
  std::vector<const Changed*> cases;
};

bool to_run_again(Change change) { return change <= Change::other_cause; }

/// The changes of one kind, most cases first.
std::vector<CauseGroup> cause_groups(const Comparison& c, Change change) {
  std::vector<CauseGroup> out;
  std::vector<std::string> keys;
  for (const Changed& one : c.changes) {
    if (one.change != change) continue;
    const std::string key = change == Change::renamed ? ""
                            : to_run_again(change)    ? to_string(one) + '\x1f' + one.after->kind
                                                      : to_string(one);
    const auto found = std::ranges::find(keys, key);
    if (found != keys.end()) {
      out[static_cast<std::size_t>(found - keys.begin())].cases.push_back(&one);
      continue;
    }
    keys.push_back(key);
    out.push_back({change == Change::renamed ? "" : to_string(one), {&one}});
  }
  for (CauseGroup& one : out) {
    if (!to_run_again(change)) continue;
    const std::string& message = one.cases.front()->after->message;
    const bool same = std::ranges::all_of(one.cases, [&](const Changed* other) { return other->after->message == message; });
    one.words += (same ? ": " : ": e.g. ") + cut(message, 200);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const CauseGroup& x, const CauseGroup& y) { return x.cases.size() > y.cases.size(); });
  return out;
}

std::string slower_text(const Slower& s) {
  return fmt::format(
      "{}: {:.{}f} x the time, {}{}", s.group, s.ratio, s.ratio < 10 ? 2 : 1,
      s.slow == s.cases ? plural(s.cases, "case") : fmt::format("{} of {}", thousands(s.slow), plural(s.cases, "case")),
      s.group == "all cases" ? "" : fmt::format(" (the others {:.2f} x)", s.others));
}

/// What differs beside the cases, and which values were taken for others; lines of a heading and a text.
std::vector<std::pair<std::string, std::string>> around(const Comparison& c) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!c.differs.empty()) out.emplace_back("differ", difference_text(c.differs));
  for (const Mapping& m : c.mapped)
    out.emplace_back("mapped", fmt::format("{} {} -> {}: {}{}", m.axis, m.before, m.after, plural(m.cases, "case"),
                                           m.found ? "; --map says otherwise" : ""));
  if (c.pace >= busy || c.pace <= 1 / busy)
    out.emplace_back("pace", fmt::format("{:.2f} x the time of all cases; of the suite's own work in them {:.2f} x", c.pace,
                                         c.pace_of_suite));
  return out;
}

/// Of the newly skipped.
std::string optional_text(std::int64_t lost, std::int64_t all) {
  return lost == all ? "" : lost == 0 ? " (all optional)" : fmt::format(" ({} optional)", thousands(all - lost));
}

/// "12 newly failing, 3 fixed; 280 as before, 5 of them failing".
std::string tally(const Comparison& c) {
  std::string line;
  for (int k = 0; k < change_count; ++k) {
    const auto change = static_cast<Change>(k);
    if (const auto n = c.of(change); n > 0)
      line += fmt::format("{}{} {}{}", line.empty() ? "" : ", ", thousands(n), name(change),
                          change == Change::newly_skipped ? optional_text(c.lost, n) : "");
  }
  if (!c.slower.empty()) line += fmt::format("{}{} slower", line.empty() ? "" : ", ", plural(std::ssize(c.slower), "group"));
  line = fmt::format("{}; {} as before{}", line.empty() ? "nothing changed" : line, thousands(c.alike),
                     c.still_failing > 0 ? fmt::format(", {} of them failing", thousands(c.still_failing)) : "");
  if (c.only_one > 0)
    line += fmt::format("; {} in one of the two only, left out of the other by --budget", thousands(c.only_one));
  return line;
}

/// As the page's script reads its address (reports/templates/address.js).
std::string address_of(std::string_view id) {
  std::string out = "#case=";
  for (const char c : id) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

std::string difference_text(const std::vector<store::Difference>& all) {
  std::string out;
  const auto words = [](const std::string& text) { return text.empty() ? "none" : text; };
  for (std::size_t i = 0; i < all.size() && i < differences_shown; ++i)
    out += fmt::format("{}{} {} -> {}", out.empty() ? "" : ", ", all[i].name, words(all[i].before), words(all[i].after));
  return out + (all.size() > differences_shown ? fmt::format(" and {} more", all.size() - differences_shown) : "");
}

void print_comparison(std::ostream& out, const Comparison& c, const Repro& repro) {
  out << fmt::format("before  {}\nafter   {}\n", run_text(c.before), run_text(c.after));
  for (const auto& [heading, text] : around(c)) out << fmt::format("{:<7} {}\n", heading, visible(text));
  for (int k = 0; k < change_count; ++k) {
    const auto change = static_cast<Change>(k);
    if (c.of(change) == 0) continue;
    out << fmt::format("\n{} ({})\n", name(change), thousands(c.of(change)));
    const std::vector<CauseGroup> causes = cause_groups(c, change);
    for (std::size_t i = 0; i < causes.size() && i < causes_shown; ++i) {
      const auto& [words, cases] = causes[i];
      if (!words.empty())
        out << fmt::format("  {}{}\n", visible(words),
                           cases.size() > 1 ? fmt::format(" ({} cases)", thousands(std::ssize(cases))) : "");
      const Changed& first = *cases.front();  // --json and the page have them all
      out << "    "
          << visible(to_run_again(change) ? repro.line(first.id, RepeatOptions{tries_to_see(first.after->tries)}) : first.id)
          << (change == Change::renamed ? ", " + visible(to_string(first)) : "")
          << (cases.size() > 1 ? fmt::format("   and {} more", thousands(std::ssize(cases) - 1)) : "") << '\n';
    }
    if (causes.size() > causes_shown)
      out << fmt::format("  and {} more causes; --json has all\n", causes.size() - causes_shown);
  }
  if (!c.slower.empty()) out << "\nslower\n";
  for (const Slower& s : c.slower) out << "  " << visible(slower_text(s)) << '\n';
  out << fmt::format("\n{}\n", tally(c));
}

std::string comparison_markup(const Comparison& c) {
  std::string out = fmt::format(
      "<section aria-labelledby=\"since\"><h2 id=\"since\">Since the previous run</h2>\n<p class=\"lead\">{}. Before: "
      "{}.</p>\n",
      escaped(tally(c)), escaped(run_text(c.before)));
  for (const auto& [heading, text] : around(c))
    out += fmt::format("<p>{}: {}.</p>\n",
                       heading == "differ"   ? "What differs"
                       : heading == "mapped" ? "Mapped"
                                             : "Pace",
                       escaped(text));
  for (int k = 0; k < change_count; ++k) {
    const auto change = static_cast<Change>(k);
    if (c.of(change) == 0) continue;
    out += fmt::format("<h3>{} <span class=\"count\">{}</span></h3>\n<ul class=\"since\">", name(change),
                       plural(c.of(change), "case"));
    const std::vector<CauseGroup> causes = cause_groups(c, change);
    for (std::size_t i = 0; i < causes.size() && i < causes_shown; ++i) {
      const auto& [words, cases] = causes[i];
      out += fmt::format("<li>{}{}<ul class=\"ids\">", escaped(words),
                         cases.size() > 1 && !words.empty()
                             ? fmt::format(" <span class=\"count\">{}</span>", plural(std::ssize(cases), "case"))
                             : "");
      for (std::size_t n = 0; n < cases.size() && n < linked_shown; ++n) {
        const std::string id = fmt::format("<code>{}</code>", escaped(cases[n]->id));
        out += "<li>" +
               (cases[n]->after ? fmt::format("<a href=\"{}\">{}</a>", address_of(visible(cases[n]->id)), id) : id) +
               (change == Change::renamed ? ", " + escaped(to_string(*cases[n])) : "") + "</li>";
      }
      if (cases.size() > linked_shown)
        out += fmt::format("<li class=\"quiet\">and {} more</li>",
                           thousands(std::ssize(cases) - static_cast<std::int64_t>(linked_shown)));
      out += "</ul></li>";
    }
    if (causes.size() > causes_shown)
      out += fmt::format("<li class=\"quiet\">and {} more causes; kvcts compare --json has all</li>",
                         causes.size() - causes_shown);
    out += "</ul>\n";
  }
  if (!c.slower.empty()) out += "<h3>slower</h3>\n<ul class=\"since\">";
  for (const Slower& s : c.slower) out += "<li>" + escaped(slower_text(s)) + "</li>";
  return out + (c.slower.empty() ? "" : "</ul>\n") + "</section>\n";
}

}  // namespace kvcts::report
