// The page of a run: plain markup out of reports/templates, everything inline, no network. What is on it is bounded, so that
// a large run still opens: see the limits below. Nothing is left out unsaid.
#include <fmt/format.h>

#include <algorithm>

#include "report/sink.hpp"
#include "report/template.hpp"
#include "report/text.hpp"

namespace kvcts::report {
namespace {

constexpr std::size_t rows_limit = 3'200'000;     // bytes of the table of cases
constexpr std::size_t details_limit = 1'200'000;  // bytes of the lists of causes
constexpr std::size_t evidence_shown = 6'000;     // bytes of one evidence text

struct SectionWords {
  Section section;
  std::string_view anchor, title, lead;
};
constexpr std::array<SectionWords, 7> section_words{{
    {Section::failed, "failed", "Not as expected",
     "Grouped by cause: same outcome, fault class, phase and message but for numbers."},
    {Section::suite_error, "errors", "The suite's own errors", "These say nothing about the code under test."},
    {Section::xpassed, "xpass", "Passed against a waiver (XPASS)", "The known defect did not show: the waiver can go."},
    {Section::waived, "waived", "Waived (XFAIL)", "Known defects, each with a waiver that names reason, owner and expiry."},
    {Section::skipped, "skipped", "Skipped", "This machine lacks what is named."},
    {Section::not_run, "notrun", "Not run", "Planned, but left out by budget, interruption or declaration."},
    {Section::unsupported, "unsupported", "Unsupported", "Excluded by a constraint of the catalogue, as declared."},
}};

std::string code(std::string_view text) { return "<code>" + escaped(text) + "</code>"; }

// ---- machine facts -----------------------------------------------------------------------------------------------------

std::string facts(const nlohmann::json& value, int depth = 0) {
  if (value.is_string()) return escaped(value.get_ref<const std::string&>());
  if (!value.is_structured() || depth > 8)
    return escaped(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (value.empty()) return "<span class=\"quiet\">none</span>";
  std::string out = value.is_object() ? "<dl>" : "<ul>";
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) {
      std::string label = key;
      std::replace(label.begin(), label.end(), '_', ' ');
      out += "<dt>" + escaped(label) + "</dt><dd>" + facts(item, depth + 1) + "</dd>";
    } else {
      out += "<li>" + facts(item, depth + 1) + "</li>";
    }
  }
  return out + (value.is_object() ? "</dl>" : "</ul>");
}

// ---- one case in full --------------------------------------------------------------------------------------------------

std::string pair(std::string_view key, const std::string& markup) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>", key, markup);
}

std::string wrong_table(const std::vector<WrongByte>& wrong) {
  std::string out =
      "<table><caption>First wrong bytes</caption><thead><tr><th scope=\"col\">Where</th><th scope=\"col\">Region</th>"
      "<th scope=\"col\" class=\"n\">Offset</th><th scope=\"col\">Expected</th><th "
      "scope=\"col\">Found</th></tr></thead><tbody>";
  for (std::size_t i = 0; i < wrong.size() && i < 8; ++i) {
    const auto& w = wrong[i];
    out += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>", escaped(w.where),
                       code(w.region), thousands(w.offset), code(w.expected), code(w.observed));
  }
  return out + "</tbody></table>";
}

std::string phase_table(const std::vector<PhaseTime>& phases) {
  std::string out = "<table><caption>Phases</caption><tbody>";
  for (const auto& p : phases) {
    out += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td></tr>", name(p.phase), duration(p.ns));
  }
  return out + "</tbody></table>";
}

std::string full_case(const store::Row& row) {
  const auto& r = row.result;
  std::string out = fmt::format("<details><summary class=\"id\">{}</summary><dl>", escaped(row.planned.id));
  out += pair("Expected", escaped(expected_words(row.planned.expected)));
  out += pair("Ended", escaped(row.decided ? ending_words(r) : "NOT_RUN"));
  if (!r.message.empty()) out += pair("Message", escaped(r.message));
  if (!r.diagnosis.text.empty()) {
    out += pair(r.diagnosis.exact ? "Diagnosis" : "Diagnosis (a guess)", escaped(r.diagnosis.text));
  }
  for (const auto& other : r.diagnosis.others) out += pair("Or as well", escaped(other));
  if (!r.diagnosis.what_to_do.empty()) out += pair("What to do", escaped(r.diagnosis.what_to_do));
  if (r.checked_bytes > 0) {
    out += pair("Bytes",
                fmt::format("{} checked, {} wrong; {} planned, {} moved, {} expected in {}", thousands(r.checked_bytes),
                            thousands(r.wrong_bytes), thousands(r.planned_bytes), thousands(r.moved_bytes),
                            thousands(r.expected_bytes), r.copies == 1 ? "1 copy" : thousands(r.copies) + " copies"));
  }
  if (r.peak_bytes > 0) out += pair("Peak memory", bytes(r.peak_bytes));
  if (row.decided) out += pair("Evidence", fmt::format("{}: {}", name(r.evidence), evidence_words(r.evidence)));
  if (!row.shared_with.empty()) out += pair("Execution shared with", code(row.shared_with));
  if (!r.worker.empty()) {
    out += pair("Worker", escaped(fmt::format("{}, its case number {}", r.worker, r.worker_ordinal + 1)) +
                              (r.ran_before.empty() ? "" : ", after " + code(r.ran_before)));
  }
  if (!r.facts.empty()) out += pair("Facts", facts(r.facts));
  out += "</dl>";
  if (!r.first_wrong.empty()) out += wrong_table(r.first_wrong);
  if (!r.phases.empty()) out += phase_table(r.phases);
  for (const auto& file : r.evidence_files) {
    const std::string_view shown = std::string_view(file.text).substr(0, evidence_shown);
    out += fmt::format("<details><summary>{} ({}{})</summary><pre>{}</pre></details>", escaped(file.kind),
                       plural(static_cast<std::int64_t>(file.text.size()), "byte"),
                       shown.size() < file.text.size() ? ", the beginning is shown" : "", escaped(shown, true));
  }
  return out + "</details>";
}

// ---- causes ------------------------------------------------------------------------------------------------------------

// All ids of a cause, folded, as far as there is room.
std::string id_list(const Cause& cause, std::size_t room) {
  std::string list;
  std::int64_t listed = 0;
  for (const auto& id : cause.ids) {
    if (list.size() + id.size() + 200 > room) break;
    list += "<li>" + escaped(id) + "</li>";
    ++listed;
  }
  if (listed < cause.count) {
    list += fmt::format("<li class=\"quiet\">{} more: filter the table below, or read results.json</li>",
                        thousands(cause.count - listed));
  }
  return fmt::format("<details><summary>{}</summary><ul class=\"id\">{}</ul></details>",
                     cause.count == 1 ? "which" : fmt::format("all {}", plural(cause.count, "case")), list);
}

std::string cause_block(const Cause& cause, const SectionWords& words, std::size_t number, std::size_t& room) {
  std::string out = fmt::format("<div class=\"cause\" id=\"{}-{}\"><h3>{}. {} <span class=\"quiet\">({})</span></h3>",
                                words.anchor, number, number, escaped(cause.title), plural(cause.count, "case"));
  if (!cause.message.empty()) out += fmt::format("<p>{}</p>", escaped(cut(cause.message, 1000)));
  if (!cause.note.empty()) out += fmt::format("<p class=\"quiet\">{}</p>", escaped(cause.note));
  if (!cause.check.empty()) out += fmt::format("<p><strong>Next:</strong> {}</p>", escaped(cause.check));
  if (!cause.ids.empty()) out += fmt::format("<pre>{}</pre>", escaped(repro_line(cause.ids.front())));
  for (const auto& sample : cause.samples) {
    const std::string markup = full_case(sample);
    if (out.size() + markup.size() > room) break;
    out += markup;
  }
  if (cause.count > 1) out += id_list(cause, room > out.size() ? room - out.size() : 0);
  out += "</div>\n";
  room -= std::min(room, out.size());
  return out;
}

// Where nothing failed a line is enough: how many, why, which.
std::string reason_line(const Cause& cause, const SectionWords& words, std::size_t number, std::size_t& room) {
  std::string reason = escaped(cut(cause.message.empty() ? cause.title : cause.message, 400));
  if (!cause.note.empty()) reason += " <span class=\"quiet\">(" + escaped(cause.note) + ")</span>";
  const std::string out = fmt::format("<li id=\"{}-{}\">{}: {}{}</li>\n", words.anchor, number, plural(cause.count, "case"),
                                      reason, id_list(cause, room > 1000 ? room - 1000 : 0));
  room -= std::min(room, out.size());
  return out;
}

// ---- counts ------------------------------------------------------------------------------------------------------------

struct Line {
  std::string label;
  std::int64_t n;
};
std::string figure_table(std::string_view caption, const std::vector<Line>& lines) {
  std::string out = fmt::format("<table><caption>{}</caption><tbody>", caption);
  for (const auto& line : lines) {
    if (line.n != 0)
      out +=
          fmt::format("<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td></tr>", escaped(line.label), thousands(line.n));
  }
  return out + "</tbody></table>\n";
}

std::string counts_markup(const RunView& view) {
  const auto& c = view.counts;
  std::vector<Line> outcomes, verdicts;
  for (int i = 0; i < outcome_count; ++i)
    outcomes.push_back({std::string(name(static_cast<Outcome>(i))), c.outcome[static_cast<std::size_t>(i)]});
  for (int i = 0; i < verdict_count; ++i) {
    const auto verdict = static_cast<Verdict>(i);
    if (verdict == Verdict::not_run) {
      verdicts.push_back({"not run, as declared", c.of(verdict) - c.missing});
      verdicts.push_back({"planned and absent (a failure)", c.missing});
    } else {
      verdicts.push_back({std::string(name(verdict)), c.of(verdict)});
    }
  }
  std::string out = figure_table("Outcomes (cases)", outcomes) + figure_table("Verdicts (cases)", verdicts);
  out +=
      "<table><caption>Evidence</caption><thead><tr><th scope=\"col\">Kind</th><th scope=\"col\" class=\"n\">Cases</th>"
      "<th scope=\"col\" class=\"n\">Unique executions</th><th scope=\"col\">Meaning</th></tr></thead><tbody>";
  for (int i = evidence_count - 1; i >= 0; --i) {
    const auto kind = static_cast<Evidence>(i);
    const auto at = static_cast<std::size_t>(i);
    out += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                       name(kind), thousands(c.ids[at]), thousands(c.executions[at]), evidence_words(kind));
  }
  out += "</tbody></table>\n";
  if (!view.slowest.empty()) {
    out += "<table><caption>Slowest executions</caption><tbody>";
    for (const auto& s : view.slowest) {
      out += fmt::format("<tr><th scope=\"row\" class=\"id\">{}</th><td class=\"n\">{}</td></tr>", escaped(s.id),
                         duration(s.wall_ns));
    }
    out += "</tbody></table>\n";
  }
  return out;
}

std::string run_markup(const RunView& view) {
  std::string out = "<dl>";
  out += pair("Selection", view.info.selection.empty() ? "everything in the suite" : code(view.info.selection));
  for (const auto& s : view.sessions) {
    std::string command;
    for (const auto& arg : s.argv) {
      const bool plain = !arg.empty() && std::all_of(arg.begin(), arg.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view("-_./=:,+@%").find(c) != std::string_view::npos;
      });
      command += (command.empty() ? "" : " ") + (plain ? arg : shell_word(arg));
    }
    std::string end = s.ending ? std::string(name(*s.ending)) : "killed, or still at work";
    if (!s.reason.empty()) end += " (" + s.reason + ")";
    out += pair("Sitting", fmt::format("{} to {}: {}; {}", store::utc(s.started_ms), store::utc(s.ended_ms), escaped(end),
                                       code(command)));
  }
  out += pair("Time in cases", duration(view.counts.case_ns));
  return out + pair("Machine", facts(view.info.machine)) + "</dl>";
}

// ---- the page ----------------------------------------------------------------------------------------------------------

class HtmlReport : public Sink {
 public:
  HtmlReport(std::ostream& out, const RunView& view) : out_(out), view_(view) {}

  void row(const store::Row& row) override {
    const auto section = section_of(row);
    auto& rows = section == Section::fine ? plain_ : notable_;
    if (rows.bytes > rows_limit) {
      ++rows.dropped;
      return;
    }
    const auto& r = row.result;
    std::string remark;
    if (const auto number = view_.cause_of(row); number > 0) {
      const auto& words =
          *std::find_if(section_words.begin(), section_words.end(), [&](const auto& w) { return w.section == section; });
      remark = fmt::format("<a href=#{0}-{1}>{2} {1}</a> {3}", words.anchor, number,
                           section == Section::failed ? "cause" : "see", escaped(cut(r.message, 100)));
    } else if (r.outcome != Outcome::pass) {
      remark = escaped(cut(ending_words(r) + ", as expected", 120));
    }
    const char* tone = section == Section::failed || section == Section::suite_error ? " class=b"
                       : section == Section::fine                                    ? ""
                                                                                     : " class=w";
    // End tags of cells and rows are optional in HTML; ten thousand rows without them are a megabyte less.
    std::string markup = fmt::format("<tr{}><th scope=row>{}<td>{}<td>{}<td>{}<td class=n>{}<td>{}\n", tone,
                                     escaped(row.planned.id), name(r.outcome),
                                     row.decided            ? name(r.verdict)
                                     : row.declared_not_run ? "not run"
                                                            : "absent",
                                     row.decided && !r.phases.empty() ? name(r.evidence) : "",
                                     row.decided && r.wall_ns > 0 ? duration(r.wall_ns) : "", remark);
    rows.bytes += markup.size();
    rows.list.emplace_back(row.ordinal, std::move(markup));
  }

  void end() override {
    std::size_t room = details_limit;
    std::string sections, contents;
    for (const auto& words : section_words) {
      const auto& causes = view_.of(words.section);
      if (causes.empty()) continue;
      std::int64_t cases = 0;
      for (const auto& cause : causes) cases += cause.count;
      contents += fmt::format("<li><a href=\"#{}\">{} ({})</a></li>", words.anchor, words.title, thousands(cases));
      sections += fmt::format("<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}: {2}</h2>\n<p class=\"quiet\">{3}</p>\n",
                              words.anchor, words.title, plural(cases, "case"), words.lead);
      std::size_t number = 0;
      // Whole cases only where somebody will look into them.
      const bool in_full = words.section <= Section::waived;
      if (!in_full) sections += "<ul>\n";
      for (const auto& cause : causes) {
        if (room < 2000) {
          const std::string more = fmt::format("And {} more, in results.json.",
                                               plural(static_cast<std::int64_t>(causes.size() - number), "group"));
          sections += in_full ? "<p>" + more + "</p>" : "<li>" + more + "</li>";
          break;
        }
        ++number;
        sections += in_full ? cause_block(cause, words, number, room) : reason_line(cause, words, number, room);
      }
      if (!in_full) sections += "</ul>\n";
      sections += "</section>\n";
    }
    contents +=
        "<li><a href=\"#counts\">Counts</a></li><li><a href=\"#cases\">All cases</a></li><li><a href=\"#machine\">Run and "
        "machine</a></li>";

    std::int64_t left_out = 0;
    const std::string rows = table_rows(left_out);
    const bool good = view_.exit_status == 0;
    out_ << fill(
        page_template(),
        {{"headline", view_.headline},
         {"suite", view_.info.suite},
         {"style", std::string(page_style())},
         {"script", std::string(page_script())},
         {"tone", good                                               ? "good"
                  : view_.exit_status == 1 || view_.exit_status == 3 ? "bad"
                                                                     : "open"},
         {"exit_status", fmt::to_string(view_.exit_status)},
         {"started", store::utc(view_.info.started_ms)},
         {"busy", duration(view_.busy_ms * 1'000'000)},
         {"sittings", view_.sessions.size() > 1 ? fmt::format(" in {} sittings", view_.sessions.size()) : ""},
         {"version", view_.info.version},
         {"seed", fmt::to_string(view_.info.seed)},
         {"contents", contents},
         {"sections", sections},
         {"counts", counts_markup(view_)},
         {"table_note", left_out == 0 ? plural(view_.counts.planned, "case") + ", in the order of the plan."
                                      : fmt::format("{}; {} that ended as others do are left out of this page to keep it "
                                                    "small. All are in results.json.",
                                                    plural(view_.counts.planned, "case"), thousands(left_out))},
         {"rows", rows},
         {"run", run_markup(view_)}});
  }

 private:
  struct Rows {
    std::vector<std::pair<std::int64_t, std::string>> list;
    std::size_t bytes{0};
    std::int64_t dropped{0};
  };

  // In plan order; where not all have room, passing rows go first.
  std::string table_rows(std::int64_t& left_out) {
    std::size_t used = 0;
    std::vector<const std::pair<std::int64_t, std::string>*> kept;
    for (const auto* rows : {&notable_, &plain_}) {
      left_out += rows->dropped;
      for (const auto& item : rows->list) {
        if (used + item.second.size() > rows_limit) {
          ++left_out;
          continue;
        }
        used += item.second.size();
        kept.push_back(&item);
      }
    }
    std::sort(kept.begin(), kept.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    std::string out;
    out.reserve(used);
    for (const auto* item : kept) out += item->second;
    return out;
  }

  std::ostream& out_;
  const RunView& view_;
  Rows notable_, plain_;
};

}  // namespace

std::unique_ptr<Sink> html_report(std::ostream& out, const RunView& view) { return std::make_unique<HtmlReport>(out, view); }

}  // namespace kvcts::report
