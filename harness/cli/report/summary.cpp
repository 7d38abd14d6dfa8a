#include "cli/report/summary.hpp"

#include <fmt/format.h>

#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

constexpr std::size_t causes_shown = 15, ids_shown = 3, reasons_shown = 10;

// A cause with what an engineer needs first: message, what to check, how to repeat it.
void print_cause(std::ostream& out, const Terminal& terminal, const RunView& view, const Cause& cause, std::size_t number) {
  out << fmt::format("\n  {}. {} ({})\n", number, paint(terminal, Colour::bad, cause.title), plural(cause.count, "case"));
  if (!cause.message.empty()) out << "     " << visible(cut(cause.message, 400)) << '\n';
  if (!cause.note.empty()) out << "     " << visible(cause.note) << '\n';
  if (!cause.check.empty()) out << "     next: " << visible(cut(cause.check, 400)) << '\n';
  for (std::size_t i = 0; i < cause.ids.size() && i < ids_shown; ++i)
    out << "     " << visible(view.repro.line(cause.ids[i], cause.again)) << '\n';
  if (cause.count > static_cast<std::int64_t>(ids_shown))
    out << fmt::format("     and {} more\n", thousands(cause.count - static_cast<std::int64_t>(ids_shown)));
}

void print_causes(std::ostream& out, const Terminal& terminal, const RunView& view, Section section,
                  std::string_view title) {
  const auto& causes = view.of(section);
  if (causes.empty()) return;
  out << '\n' << title << '\n';
  for (std::size_t i = 0; i < causes.size() && i < causes_shown; ++i) print_cause(out, terminal, view, causes[i], i + 1);
  if (causes.size() > causes_shown)
    out << fmt::format("\n  and {} more, see index.html\n",
                       plural(static_cast<std::int64_t>(causes.size() - causes_shown), "cause"));
}

// One line a reason.
void print_reasons(std::ostream& out, const RunView& view, Section section, std::string_view title, bool with_ending) {
  const auto& causes = view.of(section);
  if (causes.empty()) return;
  out << '\n' << title << '\n';
  std::int64_t shown = 0;
  for (const auto& cause : causes) {
    if (++shown > static_cast<std::int64_t>(reasons_shown)) break;
    const std::string reason = visible(cut(cause.message, 200));
    out << fmt::format("  {:>7} x {}{}{}\n", thousands(cause.count), with_ending ? cause.title + ": " : "", reason,
                       cause.note.empty() ? "" : " [" + visible(cause.note) + "]");
  }
  if (causes.size() > reasons_shown)
    out << fmt::format("          and {} more\n",
                       plural(static_cast<std::int64_t>(causes.size() - reasons_shown), "reason"));
}

}  // namespace

void print_summary(std::ostream& out, const RunView& view, const Terminal& terminal) {
  const auto& c = view.counts;
  print_reasons(out, view, Section::unsupported, "Unsupported, as declared", false);
  print_reasons(out, view, Section::skipped, "Skipped", false);
  print_reasons(out, view, Section::not_run, "Not run", false);
  print_reasons(out, view, Section::waived, "Waived (XFAIL)", true);
  print_reasons(out, view, Section::xpassed, "Passed against a waiver (XPASS): remove the waiver", true);
  print_causes(out, terminal, view, Section::suite_error, "The suite's own errors");
  print_causes(out, terminal, view, Section::failed, "Not as expected, by cause");

  out << "\nCases      ";
  std::string list;
  for (int i = 0; i < outcome_count; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    if (c.of(outcome) > 0) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", thousands(c.of(outcome)), name(outcome));
  }
  out << thousands(c.planned) << (list.empty() ? "" : ": " + list) << '\n';
  for (const auto& kind : view.evidence()) {
    if (kind.ids == 0) continue;
    out << fmt::format("{:<10} {}{} in {}{}\n", kind.name, plural(kind.ids, "case"), kind.where,
                       plural(kind.executions, "unique execution"),
                       kind.where.empty() ? fmt::format(" ({})", kind.words) : "");
  }
  out << fmt::format("time       {}, {} in cases", duration(view.busy_ms * 1'000'000), duration(c.case_ns));
  if (!view.slowest.empty())
    out << fmt::format("; slowest {} {}", duration(view.slowest[0].wall_ns), visible(view.slowest[0].id));
  const Colour colour = view.exit_status == 0 && !view.incomplete        ? Colour::good
                        : view.exit_status == 1 || view.exit_status == 3 ? Colour::bad
                                                                         : Colour::warn;
  out << fmt::format("\n\n{}: {}\n", visible(view.info.suite), paint(terminal, colour, view.headline)) << std::flush;
}

}  // namespace kvcts::report
