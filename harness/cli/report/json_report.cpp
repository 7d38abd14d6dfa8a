#include <fmt/format.h>

#include <algorithm>

#include "cli/report/sink.hpp"
#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

using nlohmann::json;

std::string dump(const json& value, int indent = -1) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json counts_json(const store::Counts& c) {
  json out{{"planned", c.planned}, {"decided", c.decided}, {"missing", c.missing}, {"failures", store::failures(c)}};
  for (int i = 0; i < outcome_count; ++i)
    out["outcome"][std::string(name(static_cast<Outcome>(i)))] = c.outcome[static_cast<std::size_t>(i)];
  for (int i = 0; i < verdict_count; ++i)
    out["verdict"][std::string(name(static_cast<Verdict>(i)))] = c.verdict[static_cast<std::size_t>(i)];
  for (int i = 0; i < evidence_count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    out["evidence"][std::string(name(static_cast<Evidence>(i)))] = {{"ids", c.ids[at]}, {"executions", c.executions[at]}};
  }
  out["lacks"] = json::array();
  for (const auto& lack : c.lacks)
    out["lacks"].push_back({{"name", lack.name}, {"optional", lack.optional}, {"count", lack.count}});
  out["ran"] = std::max<std::int64_t>(0, store::ran(c));
  out["incomplete"] = store::incomplete(c);
  out["left_out"] = c.left_out;
  out["case_ns"] = c.case_ns;
  return out;
}

json run_json(const RunView& view) {
  json sessions = json::array();
  for (const auto& s : view.sessions) {
    sessions.push_back({{"argv", s.argv},
                        {"pid", s.pid},
                        {"started", store::utc(s.started_ms)},
                        {"ended", store::utc(s.ended_ms)},
                        {"ending", s.ending ? std::string(name(*s.ending)) : "killed or at work"},
                        {"reason", s.reason}});
  }
  return {{"suite", view.info.suite},
          {"selection", view.info.selection},
          {"seed", view.info.seed},
          {"version", view.info.version},
          {"repeat", view.info.repeat},
          {"retries", view.info.retries},
          {"provenance", view.info.provenance},
          {"started", store::utc(view.info.started_ms)},
          {"busy_ms", view.busy_ms},
          {"machine", view.info.machine},
          {"engines", view.engines},
          {"sessions", std::move(sessions)}};
}

json causes_json(const RunView& view) {
  static constexpr std::array<std::string_view, section_count> words{"failed",  "suite_error", "xpassed",     "waived",
                                                                     "skipped", "not_run",     "unsupported", "as_expected"};
  json out = json::array();
  for (std::size_t s = 0; s < view.causes.size(); ++s) {
    for (const auto& cause : view.causes[s]) {
      out.push_back({{"section", words[s]},
                     {"title", cause.title},
                     {"message", cause.message},
                     {"check", cause.check},
                     {"note", cause.note},
                     {"count", cause.count},
                     {"first_id", cause.ids.empty() ? "" : cause.ids.front()}});
    }
  }
  return out;
}

// One result a line, so that text tools can work on the file too.
class JsonReport : public Sink {
 public:
  JsonReport(std::ostream& out, const RunView& view) : out_(out), repro_(view.repro) {
    out_ << "{\n\"format\": \"kvcts-results\",\n\"version\": 3,\n\"headline\": " << dump(view.headline)
         << ",\n\"exit_status\": " << view.exit_status << ",\n\"run\": " << dump(run_json(view))
         << ",\n\"counts\": " << dump(counts_json(view.counts)) << ",\n\"causes\": " << dump(causes_json(view))
         << ",\n\"results\": [";
  }

  void row(const store::Row& row) override {
    json item = to_json(row.result);
    item["decided"] = row.decided;
    if (!item["facts"].is_object()) item["facts"] = json::object();
    item["facts"]["repro"] = repro_.line(row.planned.id, repeat_options_of(row.result));
    item["expected"] = json::array();
    for (const auto& e : row.planned.expected) item["expected"].push_back(store::to_json(e));
    if (!row.shared_with.empty()) item["shared_with"] = row.shared_with;
    out_ << (first_ ? "\n" : ",\n") << dump(item);
    first_ = false;
  }

  void end() override { out_ << "\n]\n}\n"; }

 private:
  std::ostream& out_;
  const Repro& repro_;
  bool first_{true};
};

}  // namespace

std::unique_ptr<Sink> json_report(std::ostream& out, const RunView& view) { return std::make_unique<JsonReport>(out, view); }

}  // namespace kvcts::report
