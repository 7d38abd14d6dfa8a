#include "cli/report/ci.hpp"

#include <fmt/format.h>

#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

constexpr std::size_t most_annotations = 10, most_causes = 20;

/// As GitHub reads values of workflow commands; properties end at ':' and ','.
std::string command_text(std::string_view text, bool property) {
  std::string out;
  for (const char c : visible(text)) {
    const bool special = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
    out += special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

std::string annotation(const char* level, const RunView& view, const Cause& cause) {
  const std::string again = cause.ids.empty() ? "" : "\n" + view.repro.line(cause.ids.front(), cause.again);
  return fmt::format(
      "::{} title={}::{}\n", level, command_text(fmt::format("{} ({})", cause.title, plural(cause.count, "case")), true),
      command_text(cut(cause.message, 400) + (cause.check.empty() ? "" : " | " + cut(cause.check, 200)), false) +
          (again.empty() ? "" : "%0A" + command_text(again.substr(1), false)));
}

/// A cell of a Markdown table, and text in backquotes within it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : visible(text)) {
    if (c == '|' || c == '<' || c == '\\') out += '\\';
    out += c == '`' ? '\'' : c;
  }
  return out;
}

std::string label(std::string_view text) {
  std::string out;
  for (const char c : visible(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string github_annotations(const RunView& view) {
  std::string out;
  std::size_t shown = 0;
  for (const Section section : {Section::suite_error, Section::failed})
    for (const Cause& cause : view.of(section))
      if (shown++ < most_annotations) out += annotation("error", view, cause);
  shown = 0;
  for (const Cause& cause : view.of(Section::xpassed))
    if (shown++ < most_annotations) out += annotation("warning", view, cause);
  return out + fmt::format("::notice title={}::{}\n", command_text("kvcts " + view.info.suite, true),
                           command_text(view.headline, false));
}

std::string summary_markdown(const RunView& view) {
  std::string out = fmt::format("## kvcts {}: {}\n\n", cell(view.info.suite), cell(view.headline));
  const auto& c = view.counts;
  std::string figures;
  for (int i = 0; i < outcome_count; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    if (c.of(outcome) > 0)
      figures += fmt::format("{}{} {}", figures.empty() ? "" : ", ", thousands(c.of(outcome)), name(outcome));
  }
  out += fmt::format("{}: {}; {} in cases.\n", plural(c.planned, "case"), figures, duration(c.case_ns));
  std::size_t rows = 0, all = 0;
  for (const Section section : {Section::suite_error, Section::failed, Section::xpassed}) {
    for (const Cause& cause : view.of(section)) {
      if (++all > most_causes) continue;
      if (rows++ == 0) out += "\n| cases | what | message | again |\n| ---: | --- | --- | --- |\n";
      out +=
          fmt::format("| {} | {} | {} | `{}` |\n", thousands(cause.count), cell(cause.title), cell(cut(cause.message, 300)),
                      cause.ids.empty() ? "" : cell(view.repro.line(cause.ids.front(), cause.again)));
    }
  }
  if (all > most_causes) out += fmt::format("\nand {} more causes: index.html has them.\n", all - most_causes);
  return out;
}

std::string openmetrics(const RunView& view) {
  const auto& c = view.counts;
  const std::string suite = fmt::format("suite=\"{}\"", label(view.info.suite));
  std::string out = "# TYPE kvcts_cases gauge\n# HELP kvcts_cases Planned cases by outcome.\n";
  for (int i = 0; i < outcome_count; ++i)
    out += fmt::format("kvcts_cases{{{},outcome=\"{}\"}} {}\n", suite, name(static_cast<Outcome>(i)),
                       c.of(static_cast<Outcome>(i)));
  out += "# TYPE kvcts_verdicts gauge\n# HELP kvcts_verdicts Planned cases by verdict.\n";
  for (int i = 0; i < verdict_count; ++i)
    out += fmt::format("kvcts_verdicts{{{},verdict=\"{}\"}} {}\n", suite, name(static_cast<Verdict>(i)),
                       c.of(static_cast<Verdict>(i)));
  const auto one = [&](const char* metric, const char* help, const std::string& value) {
    out += fmt::format("# TYPE {0} gauge\n# HELP {0} {1}\n{0}{{{2}}} {3}\n", metric, help, suite, value);
  };
  one("kvcts_failures", "Cases that did not end as expected, and missing ones.", fmt::to_string(store::failures(c)));
  one("kvcts_missing", "Planned cases without a result.", fmt::to_string(c.missing));
  one("kvcts_case_seconds", "Sum of the times of all executions.",
      fmt::format("{:.3f}", static_cast<double>(c.case_ns) / 1e9));
  one("kvcts_exit_status", "0 as expected, 1 not, 3 the suite's own error, 5 incomplete.", fmt::to_string(view.exit_status));
  one("kvcts_run_timestamp_seconds", "When the run began.",
      fmt::format("{:.3f}", static_cast<double>(view.info.started_ms) / 1e3));
  return out + "# EOF\n";
}

}  // namespace kvcts::report
