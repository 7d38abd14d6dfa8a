// The page of a run: one file, no network. The essentials (verdict, counts, causes with their repro lines, what did not run
// and why, the machine) are markup and can be read without scripts; cases are data that the page draws (case_data.hpp). What
// is on the page is bounded, so that a large run still opens. Nothing is left out unsaid.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/report/case_data.hpp"
#include "cli/report/map_drawing.hpp"
#include "cli/report/sink.hpp"
#include "cli/report/template.hpp"
#include "cli/report/text.hpp"
#include "cli/report/vocabulary.hpp"

namespace kvcts::report {
namespace {

constexpr std::size_t markup_limit = 700'000;  // bytes of all causes
constexpr std::size_t ids_shown = 3;           // of a cause; the script lists the others
constexpr std::size_t wrong_shown = 3;

struct SectionText {
  Section section;
  std::string_view anchor, title, lead;
};
// Not as expected: before everything else.
constexpr std::array<SectionText, 3> trouble{{
    {Section::failed, "failed", "Not as expected",
     "Grouped by cause: same outcome, fault class and phase, and the same message apart from numbers."},
    {Section::suite_error, "error", "The suite's own errors", "These say nothing about the code under test."},
    {Section::xpassed, "xpass", "Passed against a waiver (XPASS)", "The known defect did not appear: remove the waiver."},
}};
constexpr std::array<SectionText, 4> rest{{
    {Section::waived, "waived", "Waived (XFAIL)",
     "Known defects, each with a waiver that names reason, owner and last day."},
    {Section::skipped, "skipped", "Skipped", "This machine lacks the item named."},
    {Section::not_run, "notrun", "Not run", "Planned, but left out by budget, interruption or declaration."},
    {Section::unsupported, "unsupported", "Unsupported",
     "Excluded by a declared limit of a backend, a layout, an arch or an engine."},
}};

std::string_view anchor_of(Section section) {
  for (const auto& words : trouble)
    if (words.section == section) return words.anchor;
  for (const auto& words : rest)
    if (words.section == section) return words.anchor;
  return "";
}

std::string code(std::string_view text) { return "<code>" + escaped(text) + "</code>"; }
std::string pair(std::string_view key, const std::string& markup) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>", key, markup);
}

// ---- machine -----------------------------------------------------------------------------------------------------------

bool is_scalar_list(const nlohmann::json& value) {
  return value.is_array() && std::none_of(value.begin(), value.end(), [](const auto& item) { return item.is_structured(); });
}

std::string scalar(const nlohmann::json& value, const std::string& key) {
  if (value.is_string()) return escaped(value.get_ref<const std::string&>());
  if (value.is_null()) return "<span class=\"quiet\">none found</span>";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  static constexpr std::array<std::string_view, 3> sizes{"ram", "dev_shm", "locked_memory"};  // of kvcts doctor, in bytes
  if (value.is_number_integer() && (key.ends_with("bytes") || std::find(sizes.begin(), sizes.end(), key) != sizes.end()))
    return bytes(value.get<std::int64_t>());
  return escaped(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string facts(const nlohmann::json& value, const std::string& key = "", int depth = 0) {
  if (!value.is_structured() || depth > 8) return scalar(value, key);
  if (value.empty()) return "<span class=\"quiet\">none</span>";
  if (is_scalar_list(value)) {
    std::string line;
    for (const auto& item : value) line += (line.empty() ? "" : " ") + scalar(item, key);
    return line.size() < 400 ? line
                             : fmt::format("<details><summary>{}</summary>{}</details>",
                                           plural(static_cast<std::int64_t>(value.size()), "entry"), line);
  }
  std::string out;
  if (key == "packages") {  // many short lines: one beside the other, names as they are
    for (const auto& [name, item] : value.items())
      out += fmt::format("<li>{} <span class=\"version\">{}</span></li>", escaped(name), scalar(item, name));
    return "<ul class=\"items\">" + out + "</ul>";
  }
  out = value.is_object() ? "<dl>" : "<ul>";
  for (const auto& [name, item] : value.items()) {
    std::string label = name;
    if (label.ends_with("_bytes") && item.is_number()) label.resize(label.size() - 6);
    std::replace(label.begin(), label.end(), '_', ' ');
    out += value.is_object() ? pair(escaped(label), facts(item, name, depth + 1))
                             : "<li>" + facts(item, key, depth + 1) + "</li>";
  }
  return out + (value.is_object() ? "</dl>" : "</ul>");
}

std::string command_line(const std::vector<std::string>& argv) {
  std::string out;
  for (const auto& arg : argv) {
    const bool plain = !arg.empty() && std::all_of(arg.begin(), arg.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             std::string_view("-_./=:,+@%").find(c) != std::string_view::npos;
    });
    out += (out.empty() ? "" : " ") + (plain ? arg : shell_word(arg));
  }
  return out;
}

// ---- causes ------------------------------------------------------------------------------------------------------------

std::string wrong_table(const std::vector<WrongByte>& wrong) {
  std::string out =
      "<div class=\"wide\"><table><caption>First wrong bytes of the first case</caption><thead><tr><th "
      "scope=\"col\">Where</th>"
      "<th scope=\"col\">Region</th><th scope=\"col\" class=\"n\">Offset</th><th scope=\"col\">Expected</th><th "
      "scope=\"col\">Found</th></tr></thead><tbody>";
  for (std::size_t i = 0; i < std::min(wrong.size(), wrong_shown); ++i) {
    const auto& w = wrong[i];
    out += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>", escaped(w.where),
                       code(w.region), thousands(w.offset), code(w.expected), code(w.observed));
  }
  return out + "</tbody></table></div>";
}

// The first ids, so that the page says which also without scripts; the script puts a list of all in its place.
std::string id_list(const Cause& cause, std::string_view key) {
  std::string out = fmt::format("<ul class=\"ids\" data-cause=\"{}\">", key);
  for (std::size_t i = 0; i < std::min(cause.ids.size(), ids_shown); ++i) out += "<li>" + code(cause.ids[i]) + "</li>";
  if (cause.count > static_cast<std::int64_t>(ids_shown))
    out += fmt::format("<li class=\"quiet\">and {} more, in results.json</li>",
                       thousands(cause.count - static_cast<std::int64_t>(ids_shown)));
  return out + "</ul>";
}

/// Of a cause: how many of its cases are new in it since the earlier run, and how they stood night by night.
std::string standing_markup(const Cause& cause, const Around& around, const std::set<std::string>& fresh) {
  std::string out;
  const auto n =
      std::count_if(cause.ids.begin(), cause.ids.end(), [&](const std::string& id) { return fresh.contains(id); });
  if (n > 0)
    out += fmt::format("<span class=\"badge\">{}new since the previous run</span>",
                       n == std::ssize(cause.ids) ? "" : fmt::format("{} of {} ", n, cause.ids.size()));
  if (around.nights) out += strip_markup(worst_strip(cause.ids, *around.nights));
  return out.empty() ? "" : "<p class=\"standing\">" + out + "</p>";
}

std::string cause_card(const Cause& cause, const Repro& repro, std::string_view key, std::size_t number,
                       const std::string& standing) {
  const CaseResult* first = cause.samples.empty() ? nullptr : &cause.samples.front().result;
  std::string title = escaped(cause.title);
  if (const std::string_view word = first ? name(first->diagnosis.fault_class) : ""; !word.empty())
    if (const auto at = title.find(word); at != std::string::npos)
      title.replace(at, word.size(), fmt::format("<a href=\"#class-{0}\">{0}</a>", word));
  std::string out = fmt::format(
      "<article class=\"cause\" id=\"{0}\" aria-labelledby=\"{0}-h\"><h3 id=\"{0}-h\"><span class=\"number\">{1}.</span> "
      "{2} "
      "<span class=\"count\">{3}</span></h3>",
      key, number, title, plural(cause.count, "case"));
  out += standing;
  const std::string& message = first ? first->message : cause.message;
  if (!message.empty()) out += fmt::format("<p class=\"message\">{}</p>", escaped(cut(message, 1000)));
  if (first && !first->diagnosis.text.empty() && message.find(first->diagnosis.text) == std::string::npos)
    out += fmt::format("<p><strong>{}</strong> {}</p>", first->diagnosis.exact ? "Diagnosis" : "Diagnosis (a guess)",
                       escaped(first->diagnosis.text));
  if (first && !first->what_happened.empty()) {
    out += "<p><strong>What happened</strong></p><ul>";
    for (const Finding& one : first->what_happened) out += "<li>" + escaped(cut(one.text, 300)) + "</li>";
    out += "</ul>";
  }
  if (cause.count > 1 && message != cause.message)
    out += "<p class=\"quiet\">This is the first case; the others differ only in numbers.</p>";
  if (!cause.note.empty()) out += fmt::format("<p class=\"quiet\">{}</p>", escaped(cause.note));
  if (!cause.check.empty()) out += fmt::format("<p class=\"next\"><strong>Next</strong> {}</p>", escaped(cause.check));
  if (!cause.ids.empty())
    out += fmt::format("<pre class=\"copy\">{}</pre>", escaped(repro.line(cause.ids.front(), cause.again)));
  if (first) out += map_svg(first->picture);
  if (first && !first->first_wrong.empty()) out += "<div class=\"plain\">" + wrong_table(first->first_wrong) + "</div>";
  return out + id_list(cause, key) + "</article>\n";
}

// Where nothing failed a line is enough: how many, why, which.
std::string reason_row(const Cause& cause, std::string_view key, std::size_t number) {
  std::string reason = escaped(cut(cause.message.empty() ? cause.title : cause.message, 400));
  if (!cause.note.empty()) reason += " <span class=\"quiet\">(" + escaped(cause.note) + ")</span>";
  return fmt::format("<tr id=\"{}\"><td class=\"n\">{}</td><td><span class=\"number\">{}.</span> {}{}</td></tr>\n", key,
                     thousands(cause.count), number, reason, id_list(cause, key));
}

// ---- counts ------------------------------------------------------------------------------------------------------------

/// What became of the cases, for the bar at the top: everything is in one of these.
struct Share {
  std::string_view key, label;
  std::int64_t n;
};

std::string bar(const std::vector<Share>& shares, std::int64_t all) {
  if (all == 0) return "";
  std::string segments, words;
  for (const auto& s : shares) {
    if (s.n == 0) continue;
    segments += fmt::format("<span class=\"{}\" style=\"flex:{} 0 3px\"></span>", s.key, s.n);
    words += fmt::format("<li class=\"{}\"><b>{}</b> {}</li>", s.key, thousands(s.n), s.label);
  }
  return "<div class=\"bar\" aria-hidden=\"true\">" + segments + "</div><ul class=\"shares\">" + words + "</ul>";
}

class HtmlReport : public Sink {
 public:
  HtmlReport(std::ostream& out, const RunView& view, matrix::Space* space, const Around& around)
      : out_(out), view_(view), space_(space), around_(around), data_(space) {
    for (const Changed& one : around.since ? around.since->changes : std::vector<Changed>{})
      if (one.change <= Change::other_cause) fresh_.insert(one.id);
  }

  void row(const store::Row& row) override {
    const auto section = section_of(row);
    std::string cause;
    if (const auto number = view_.cause_of(row); number > 0) cause = fmt::format("{}-{}", anchor_of(section), number);
    ++sections_[static_cast<std::size_t>(section)];
    if (row.result.diagnosis.fault_class != FaultClass::none) classes_.insert(row.result.diagnosis.fault_class);
    ++cross_[static_cast<std::size_t>(row.result.outcome)][static_cast<std::size_t>(section)];
    data_.add(row, section, cause);
  }

  // One table: what goes into each place of the page's template.
  void end() override {
    std::string failures, others, contents;
    const auto part = [&](const SectionText& words, bool cards) {
      const auto& causes = view_.of(words.section);
      if (causes.empty()) return;
      contents += fmt::format("<li><a href=\"#{}\">{} <span class=\"count\">{}</span></a></li>", words.anchor, words.title,
                              thousands(sections_[static_cast<std::size_t>(words.section)]));
      (cards ? failures : others) += section_markup(words, causes, cards);
    };
    if (around_.since) contents += "<li><a href=\"#since\">Since the previous run</a></li>";
    if (around_.nights && !around_.nights->markup.empty()) contents += "<li><a href=\"#nights\">Nights</a></li>";
    for (const auto& words : trouble) part(words, true);
    contents +=
        "<li class=\"scripted\"><a href=\"#matrix\">Matrix</a></li><li class=\"scripted\"><a href=\"#cases\">Cases</a></li>";
    for (const auto& words : rest) part(words, words.section == Section::waived);
    if (!classes_.empty()) contents += "<li><a href=\"#classes\">Fault classes</a></li>";
    contents +=
        "<li class=\"scripted\"><a href=\"#coverage\">Coverage</a></li><li><a href=\"#machine\">Run and machine</a></li>";
    // The waived are cards too, but belong behind the matrix.
    std::string waived;
    if (const auto& causes = view_.of(Section::waived); !causes.empty()) {
      const auto at = failures.find("<section aria-labelledby=\"waived\"");
      waived = failures.substr(at);
      failures.resize(at);
    }

    nlohmann::json page = data_.json();
    page["run"] = {{"suite", view_.info.suite},
                   {"planned", view_.counts.planned},
                   {"repro", {visible(view_.repro.before()), visible(view_.repro.after()), visible(view_.repro.as_run())}}};
    page["messages"] = messages();
    if (around_.nights) page["strips"] = around_.nights->strips;
    if (space_) page["vocabulary"] = vocabulary(*space_);
    const auto left_out = data_.left_out();
    const bool good = view_.exit_status == 0 && !view_.incomplete, bad = view_.exit_status == 1 || view_.exit_status == 3;
    out_ << fill(
        page_template(),
        {{"title", short_verdict()},
         {"verdict", view_.headline.substr(0, view_.headline.find("; "))},
         {"remarks", view_.headline.substr(std::min(view_.headline.find("; "), view_.headline.size()))},
         {"suite", view_.info.suite},
         {"style", std::string(page_style())},
         {"script", std::string(page_script())},
         {"data", script_safe(page)},
         {"tone", good  ? "good"
                  : bad ? "bad"
                        : "open"},
         {"mark", good  ? "✓"
                  : bad ? "✗"
                        : "–"},
         {"exit_status", fmt::to_string(view_.exit_status)},
         {"started", store::utc(view_.info.started_ms)},
         {"busy", duration(view_.busy_ms * 1'000'000)},
         {"sittings", view_.sessions.size() > 1 ? fmt::format(" in {} sittings", view_.sessions.size()) : ""},
         {"version", view_.info.version},
         {"seed", view_.info.seed == 0 ? "each case's own seed" : fmt::format("seed {}", view_.info.seed)},
         {"contents", contents},
         {"failures", (around_.since ? comparison_markup(*around_.since) : "") + failures +
                          (around_.nights ? around_.nights->markup : "")},
         {"others", waived + others + classes_markup()},
         {"counts", counts_markup()},
         {"table_note",
          left_out == 0
              ? plural(view_.counts.planned, "case") + ", in the order of the plan."
              : fmt::format(
                    "{}; {} that ended as others do are left out of this page to keep it small. All are in results.json.",
                    plural(view_.counts.planned, "case"), thousands(left_out))},
         {"run", run_markup()}});
  }

 private:
  /// By the anchor of a cause, for the text filter.
  nlohmann::json messages() const {
    nlohmann::json out = nlohmann::json::object();
    for (int s = 0; s < section_count; ++s) {
      const auto& causes = view_.causes[static_cast<std::size_t>(s)];
      for (std::size_t i = 0; i < causes.size(); ++i)
        out[fmt::format("{}-{}", anchor_of(static_cast<Section>(s)), i + 1)] = visible(cut(causes[i].message, 400));
    }
    return out;
  }

  std::string section_markup(const SectionText& words, const std::vector<Cause>& causes, bool cards) {
    std::int64_t cases = 0;
    for (const auto& cause : causes) cases += cause.count;
    std::string out = fmt::format(
        "<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1} <span class=\"count\">{2}</span></h2>\n<p "
        "class=\"lead\">{3}</p>\n",
        words.anchor, words.title, plural(cases, "case"), words.lead);
    if (!cards)
      out += fmt::format(
          "<table class=\"reasons\"><caption>{} by reason</caption><thead><tr><th scope=\"col\" class=\"n\">Cases</th><th "
          "scope=\"col\">Reason</th></tr></thead><tbody>\n",
          words.title);
    std::string more;
    for (std::size_t i = 0; i < causes.size(); ++i) {
      const std::string key = fmt::format("{}-{}", words.anchor, i + 1);
      const std::string markup =
          cards ? cause_card(causes[i], view_.repro, key, i + 1, standing_markup(causes[i], around_, fresh_))
                : reason_row(causes[i], key, i + 1);
      if (markup.size() > room_) {
        more = fmt::format("<p>And {}, in results.json.</p>",
                           plural(static_cast<std::int64_t>(causes.size() - i), "more group"));
        break;
      }
      room_ -= markup.size();
      out += markup;
    }
    return out + (cards ? "" : "</tbody></table>\n") + more + "</section>\n";
  }

  std::string counts_markup() const {
    const auto of = [&](Section s) { return sections_[static_cast<std::size_t>(s)]; };
    const auto& c = view_.counts;
    const std::vector<Share> shares{{"s-fine", "as expected", of(Section::fine)},
                                    {"s-bad", "not as expected", of(Section::failed)},
                                    {"s-error", "errors of the suite", of(Section::suite_error)},
                                    {"s-xpass", "passed against a waiver", of(Section::xpassed)},
                                    {"s-waived", "waived", of(Section::waived)},
                                    {"s-skip", "skipped", of(Section::skipped)},
                                    {"s-notrun", "not run", of(Section::not_run)},
                                    {"s-unsup", "unsupported, as declared", of(Section::unsupported)}};
    std::string out = bar(shares, c.planned) + "<div class=\"figures\">";
    // Outcomes against what was made of them.
    out +=
        "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Cases by outcome and "
        "verdict\"><table><caption>Cases by outcome and verdict</caption><thead><tr><th scope=\"col\">Outcome</th>";
    for (const auto& s : shares)
      if (s.n > 0) out += fmt::format("<th scope=\"col\" class=\"n\">{}</th>", s.label);
    out += "<th scope=\"col\" class=\"n\">all</th></tr></thead><tbody>";
    static constexpr std::array order{Section::fine,   Section::failed,  Section::suite_error, Section::xpassed,
                                      Section::waived, Section::skipped, Section::not_run,     Section::unsupported};
    for (int o = 0; o < outcome_count; ++o) {
      const auto outcome = static_cast<Outcome>(o);
      if (c.of(outcome) == 0) continue;
      out += fmt::format("<tr><th scope=\"row\">{}</th>", name(outcome));
      for (std::size_t s = 0; s < shares.size(); ++s) {
        if (shares[s].n == 0) continue;
        const auto n = cross_[static_cast<std::size_t>(o)][static_cast<std::size_t>(order[s])];
        out += fmt::format("<td class=\"n{}\">{}</td>",
                           n == 0             ? " zero"
                           : s == 1 || s == 2 ? " hot"
                                              : "",
                           n == 0 ? "0" : thousands(n));
      }
      out += fmt::format("<td class=\"n\">{}</td></tr>", thousands(c.of(outcome)));
    }
    out +=
        "</tbody></table></div>\n<div class=\"wide\" role=\"region\" tabindex=\"0\" "
        "aria-label=\"Evidence\"><table><caption>Evidence</caption><thead><tr><th scope=\"col\">Kind</th><th scope=\"col\" "
        "class=\"n\">Cases</th>"
        "<th scope=\"col\" class=\"n\">Unique executions</th><th scope=\"col\">What it shows</th></tr></thead><tbody>";
    for (const auto& kind : view_.evidence())
      out += fmt::format(
          "<tr><th scope=\"row\">{0}{5}</th><td class=\"n{4}\">{1}</td><td class=\"n{4}\">{2}</td><td "
          "class=\"quiet\">{3}</td></tr>",
          kind.name, thousands(kind.ids), thousands(kind.executions), kind.words, kind.ids == 0 ? " zero" : "", kind.where);
    return out + "</tbody></table></div></div>\n";
  }

  /// What `kvcts explain CLASS` says of every class on this page.
  std::string classes_markup() const {
    if (classes_.empty()) return "";
    std::string out = "<section aria-labelledby=\"classes\"><h2 id=\"classes\">Fault classes</h2>\n<dl>";
    for (const FaultClass one : classes_)
      out += fmt::format("<dt id=\"class-{0}\">{0}</dt><dd>{1} {2}</dd>", name(one), escaped(meaning(one)),
                         escaped(advice(one)));
    return out + "</dl></section>\n";
  }

  /// For the tab of a browser: what happened, shorter than the headline.
  std::string short_verdict() const {
    if (view_.exit_status == 1)
      return fmt::format("{} of {} failed", thousands(store::failures(view_.counts)), thousands(view_.counts.planned));
    return view_.exit_status == 0 && !view_.incomplete ? "all passed" : view_.headline.substr(0, view_.headline.find("; "));
  }

  std::string run_markup() const {
    std::string out = "<div class=\"columns\"><div><h3>Run</h3><dl>";
    out += pair("Selection", view_.info.selection.empty() ? "everything in the suite" : code(view_.info.selection));
    for (const auto& s : view_.sessions) {
      std::string end = s.ending ? std::string(name(*s.ending)) : "killed, or still running";
      if (!s.reason.empty()) end += " (" + s.reason + ")";
      out += pair("Sitting", fmt::format("{} to {}: {}<br>{}", store::utc(s.started_ms), store::utc(s.ended_ms),
                                         escaped(end), code(command_line(s.argv))));
    }
    out += pair("Time in cases", duration(view_.counts.case_ns));
    out += pair("kvcts", escaped(view_.info.version)) + "</dl>";
    if (!view_.info.provenance.empty()) out += "<h3>Where it comes from</h3>" + facts(view_.info.provenance);
    if (!view_.slowest.empty()) {
      out += "<div class=\"wide\"><table><caption>Slowest executions</caption><tbody>";
      for (const auto& s : view_.slowest)
        out += fmt::format("<tr><td class=\"n\">{}</td><th scope=\"row\"><code>{}</code></th></tr>", duration(s.wall_ns),
                           escaped(s.id));
      out += "</tbody></table></div>";
    }
    out += "</div><div><h3>Machine</h3>" + facts(view_.info.machine);
    if (!view_.engines.empty()) {
      out += "<h3>Engines that ran</h3><dl>";
      for (const auto& [engine, version] : view_.engines) out += pair(escaped(engine), escaped(version));
      out += "</dl>";
    }
    return out + "</div></div>";
  }

  std::ostream& out_;
  const RunView& view_;
  matrix::Space* space_;
  Around around_;
  std::set<std::string> fresh_;  ///< ids whose failure is new
  CaseData data_;
  std::array<std::int64_t, section_count> sections_{};
  std::set<FaultClass> classes_;
  std::array<std::array<std::int64_t, section_count>, outcome_count> cross_{};
  std::size_t room_{markup_limit};
};

}  // namespace

std::unique_ptr<Sink> html_report(std::ostream& out, const RunView& view, matrix::Space* space, const Around& around) {
  return std::make_unique<HtmlReport>(out, view, space, around);
}

}  // namespace kvcts::report
