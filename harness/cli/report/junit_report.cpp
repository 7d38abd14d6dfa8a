// JUnit XML as Jenkins (by its xUnit plug-in's junit-10.xsd), GitLab and GitHub actions read it. A case is one <testcase>: a
// failure if its verdict is one, <error> if the suite is at fault, <skipped> with the reason for everything that did not run
// or is waived, and nothing else inside if all is well.
#include <fmt/format.h>

#include <algorithm>

#include "cli/report/sink.hpp"
#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

constexpr std::size_t evidence_shown = 8 << 10;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::int64_t total(const std::vector<Cause>& causes) {
  std::int64_t out = 0;
  for (const auto& c : causes) out += c.count;
  return out;
}

/// Milliseconds at most: Jenkins' schema knows no more of a suite's time.
std::string suite_seconds(std::int64_t ns) { return fmt::format("{:.3f}", static_cast<double>(ns) / 1e9); }
std::string seconds(std::int64_t ns) { return fmt::format("{:.6f}", static_cast<double>(ns) / 1e9); }

// What the case needed, what came, where to look.
std::string body(const store::Row& row, const Repro& repro) {
  const auto& r = row.result;
  std::string out =
      fmt::format("{}\nexpected: {}\nended: {}\n", r.message, expected_text(row.planned.expected), ending_text(r));
  for (const Finding& one : r.what_happened) out += "what happened: " + one.text + "\n";
  if (!r.diagnosis.text.empty())
    out += fmt::format("diagnosis{}: {}\n", r.diagnosis.exact ? "" : " (a guess)", r.diagnosis.text);
  if (!r.diagnosis.what_to_do.empty()) out += "what to do: " + r.diagnosis.what_to_do + "\n";
  for (const auto& w : r.first_wrong)
    out += fmt::format("{} byte {}: expected {}, found {} ({})\n", w.region, w.offset, w.expected, w.observed, w.where);
  if (r.tries.made > 1) out += fmt::format("tries: {}\n", tries_text(r.tries));
  return out + "again: " + repro.line(r.id, repeat_options_of(r)) + "\n";
}

class JunitReport : public Sink {
 public:
  JunitReport(std::ostream& out, const RunView& view)
      : out_(out), view_(view), suite_(view.info.suite.empty() ? "run" : view.info.suite) {
    const auto failures = total(view.of(Section::failed)), errors = total(view.of(Section::suite_error));
    const auto skipped = total(view.of(Section::skipped)) + total(view.of(Section::not_run)) +
                         total(view.of(Section::unsupported)) + total(view.of(Section::waived));
    const std::string figures = fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{}\"", view.counts.planned,
                                            failures, errors, suite_seconds(view.counts.case_ns));
    out_ << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    out_ << fmt::format("<testsuites name=\"kvcts\" {}>\n", figures);
    const auto host = view.info.provenance.value("host", "");
    out_ << fmt::format("<testsuite name=\"{}\" timestamp=\"{}\" skipped=\"{}\"{} {}>\n", escaped("kvcts." + suite_),
                        store::utc(view.info.started_ms).substr(0, 19), skipped,
                        host.empty() ? "" : fmt::format(" hostname=\"{}\"", escaped(host)), figures);
    out_ << "<properties>" << property("headline", view.headline)
         << property("exit_status", fmt::to_string(view.exit_status)) << property("selection", view.info.selection)
         << property("seed", fmt::to_string(view.info.seed)) << property("kvcts_version", view.info.version);
    for (const auto& [key, value] : view.info.provenance.items())
      if (value.is_string()) out_ << property(key, value.get<std::string>());
    if (const auto ci = view.info.provenance.find("ci"); ci != view.info.provenance.end())
      for (const auto& [key, value] : ci->items()) out_ << property("ci_" + key, value.get<std::string>());
    for (const auto& [engine, version] : view.engines) out_ << property("engine_" + engine, version);
    out_ << "</properties>\n";
  }

  void row(const store::Row& row) override {
    const auto& r = row.result;
    const auto section = section_of(row);
    const auto slash = r.id.find('/');
    const std::string group = slash == std::string::npos ? "" : "." + r.id.substr(0, slash);
    out_ << fmt::format("<testcase name=\"{}\" classname=\"{}\" time=\"{}\">", escaped(r.id),
                        escaped("kvcts." + suite_ + group), seconds(row.executions > 0 ? r.wall_ns : 0));
    switch (section) {
      case Section::failed: {
        const bool expired = r.verdict == Verdict::expired_waiver;
        const std::string type = expired ? "EXPIRED_WAIVER" : std::string(name(r.outcome));
        const std::string message =
            (expired ? "waiver " + r.waiver + " has expired; " : "") + ending_text(r) + ": " + r.message;
        out_ << fmt::format("<failure type=\"{}\" message=\"{}\">{}</failure>", type, escaped(cut(message, 500)),
                            escaped(body(row, view_.repro), true));
        tries(r);
        break;
      }
      case Section::suite_error:
        out_ << fmt::format("<error type=\"ERROR\" message=\"{}\">{}</error>", escaped(cut(r.message, 500)),
                            escaped(body(row, view_.repro), true));
        break;
      case Section::skipped:
        skipped("skipped: " + r.message);
        break;
      case Section::not_run:
        skipped("not run: " + r.message);
        break;
      case Section::unsupported:
        skipped("unsupported: " + r.message);
        break;
      case Section::waived:
        skipped(fmt::format("waived (XFAIL, {}): {}: {}", r.waiver, ending_text(r), r.message));
        break;
      case Section::xpassed:
      case Section::fine:
        break;
    }
    out_ << "<system-out>" << escaped(what_is_known(row) + evidence(row), true) << "</system-out></testcase>\n";
  }

  void end() override { out_ << "</testsuite>\n</testsuites>\n"; }

 private:
  static std::string property(std::string_view key, std::string_view value) {
    return fmt::format("<property name=\"{}\" value=\"{}\"/>", key, escaped(value));
  }
  void skipped(const std::string& reason) { out_ << fmt::format("<skipped message=\"{}\"/>", escaped(cut(reason, 1000))); }
  /// As Maven Surefire 3 reports test cases that were run again (rerunFailure: the others failed, too; flakyFailure: one of
  /// them did not), beside the <failure>: a pass of a retry is no pass.
  void tries(const CaseResult& r) {
    const bool flaky = r.outcome == Outcome::flaky;
    const char* element = flaky ? "flakyFailure" : "rerunFailure";
    for (const Try& one : r.tries.failures) {
      if (!flaky && one.number == r.tries.failures.front().number) continue;
      out_ << fmt::format("<{0} type=\"{1}\" message=\"{2}\"><stackTrace>try {3} of {4}: {5}</stackTrace></{0}>", element,
                          name(one.outcome), escaped(cut(one.message, 500)), one.number, r.tries.made,
                          escaped(one.message, true));
    }
  }
  /// What else is known of the case, a line each: a test case has no properties in Jenkins' schema.
  static std::string what_is_known(const store::Row& row) {
    const auto& r = row.result;
    const auto evidence = row.decided ? evidence_name(r) : "";
    std::string out = fmt::format("outcome: {}\nverdict: {}\nevidence: {}\n", name(r.outcome), name(r.verdict),
                                  evidence.empty() ? "none" : evidence);
    const auto add = [&](const char* key, std::string_view value) {
      if (!value.empty()) out += fmt::format("{}: {}\n", key, value);
    };
    if (section_of(row) == Section::failed) add("failure_type", lower(name(r.outcome)));
    if (r.phase) add("phase", name(*r.phase));
    if (r.hang) add("hang", name(*r.hang));
    add("signal", r.signal);
    add("fault_class", std::string(name(r.diagnosis.fault_class)));
    add("tries", tries_text(r.tries));
    add("waiver", r.waiver);
    add("shares_execution_of", row.shared_with);
    return out;
  }
  static std::string evidence(const store::Row& row) {
    const auto section = section_of(row);
    std::string text;
    if (section != Section::failed && section != Section::suite_error) return text;
    for (const auto& file : row.result.evidence_files) {
      text += "---- " + file.kind + "\n" + file.text.substr(0, evidence_shown) + "\n";
      if (file.text.size() > evidence_shown)
        text += fmt::format("[{} of {} bytes shown; the store has them]\n", evidence_shown, file.text.size());
    }
    return text;
  }

  std::ostream& out_;
  const RunView& view_;
  std::string suite_;
};

}  // namespace

std::unique_ptr<Sink> junit_report(std::ostream& out, const RunView& view) {
  return std::make_unique<JunitReport>(out, view);
}

}  // namespace kvcts::report
