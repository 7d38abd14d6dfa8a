#include "run/store/rows.hpp"

#include <fmt/format.h>

#include "run/store/counts.hpp"
#include "run/store/json_column.hpp"
#include "run/store/schema.hpp"

namespace kvcts::store {
namespace {

using nlohmann::json;

constexpr std::size_t evidence_limit = 64 << 10;

// Keys of a result that belong to the id (or are columns); the rest is the execution's.
constexpr std::array own_keys{"id",       "case_digest", "execution", "verdict",       "waiver",
                              "evidence", "facts",       "phases",    "evidence_files"};

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string joined(const ExecutionRow& row) {
  std::string out;
  for (const auto& p : row.phases) out += fmt::format("{}={};", name(p.phase), p.ns);
  for (const auto& e : row.evidence) out += fmt::format("{}:{}:{}\n", e.kind, e.text.size(), e.text);
  return out;
}

// What is read of a value that JSON leaves free, by the store or by a report.
const json expected_kinds = json::parse(R"([{"outcome!": "text", "class": "text", "phase": "text", "contains": "text"}])");
const json facts_kinds =
    json::parse(R"({"axes": {"*": "scalar"}, "engine_claims": {"transport": "text"}, "scripted": "truth"})");
const json body_kinds = json::parse(R"({"wall_ns!": "whole", "picture": {"moves_from": "text", "moves": [
  {"region!": "text", "offset!": "whole", "bytes!": "whole", "should!": "place", "did!": "place"}]}})");
const json info_kinds = json::parse(R"({
  "suite!": "text", "selection!": "text", "seed!": "seed", "version!": "text", "machine!": "object", "started_ms!": "time",
  "provenance": {"commit": "text", "cases": "text", "golden": "text", "host": "text", "isolation": "text",
                 "ci": {"*": "text"}},
  "part": {"shard": "count", "shards": "count", "whole": "count", "selection": "text", "places": ["count"]},
  "left_out": "count", "rotate": "text", "repeat": "count", "retries": "count",
  "repro": {"environment": {"*": "text"}, "cases": "text", "files": ["text"], "seed": "seed"}})");

}  // namespace

SplitResult split(const CaseResult& result) {
  json body = to_json(result);
  SplitResult out;
  out.own = {std::string(name(result.verdict)), std::string(name(result.evidence)), body.value("waiver", ""),
             dump(body.at("facts"))};
  auto& row = out.execution;
  row.digest = result.execution;
  row.ran = was_executed(result.outcome);
  row.outcome = name(result.outcome);
  row.phase = result.phase ? std::string(name(*result.phase)) : "";
  row.fault_class = name(result.diagnosis.fault_class);
  row.wall_ns = result.wall_ns;
  row.phases = result.phases;
  if (const auto files = body.find("evidence_files"); files != body.end()) {
    for (const auto& file : *files) {
      EvidenceFile kept{file.at("kind"), file.at("text")};
      if (kept.text.size() > evidence_limit) {
        std::size_t end = evidence_limit;  // do not split a character
        while (end > 0 && (static_cast<unsigned char>(kept.text[end]) & 0xC0) == 0x80) --end;
        kept.text = kept.text.substr(0, end) + fmt::format("\n[cut: {} of {} bytes kept]", end, kept.text.size());
      }
      row.evidence.push_back(std::move(kept));
    }
  }
  for (const auto* key : own_keys) body.erase(key);
  row.body = dump(body);
  return out;
}

CaseResult join(const PlannedCase& planned, const ExecutionRow& execution, const ResultRow& own) {
  json body = parse_column(execution.body, "executions.body", body_kinds);
  body["id"] = planned.id;
  body["case_digest"] = planned.digest;
  body["execution"] = execution.digest;
  body["verdict"] = own.verdict;
  if (!own.waiver.empty()) body["waiver"] = own.waiver;
  body["evidence"] = own.evidence;
  body["facts"] = facts_from_text(own.facts);
  body["phases"] = json::array();
  CaseResult result = result_from_json(body);
  result.phases = execution.phases;
  result.evidence_files = execution.evidence;
  const bool same = execution.outcome == name(result.outcome) && execution.ran == was_executed(result.outcome) &&
                    execution.phase == (result.phase ? name(*result.phase) : "") &&
                    execution.fault_class == name(result.diagnosis.fault_class) && execution.wall_ns == result.wall_ns;
  if (!same) throw std::runtime_error("executions: expected the outcome of executions.body, found another");
  return result;
}

std::string hash(const ExecutionRow& row) {
  return digest({row.digest, row.ran ? "ran" : "", row.outcome, row.phase, row.fault_class, fmt::to_string(row.wall_ns),
                 row.body, joined(row)});
}

std::int64_t seal_execution(std::string_view hash, std::int64_t first) { return seal({hash, fmt::to_string(first)}); }

std::int64_t seal_result(std::int64_t ordinal, std::int64_t execution, const ResultRow& row) {
  return seal({fmt::to_string(ordinal), fmt::to_string(execution), row.verdict, row.evidence, row.waiver, row.facts});
}

std::int64_t seal_planned(std::int64_t ordinal, std::string_view id, std::string_view digest, std::string_view execution,
                          std::string_view expected) {
  return seal({fmt::to_string(ordinal), id, digest, execution, expected});
}

std::string expected_text(const std::vector<Expected>& expected) {
  json out = json::array();
  for (const auto& e : expected) out.push_back(to_json(e));
  return dump(out);
}

json facts_from_text(std::string_view text) { return parse_column(text, "results.facts", facts_kinds); }

std::vector<Expected> expected_from_text(std::string_view text) {
  std::vector<Expected> out;
  for (const auto& item : parse_column(text, "planned.expected", expected_kinds)) out.push_back(expected_from_json(item));
  return out;
}

std::string info_text(const RunInfo& info) {
  return dump({{"suite", info.suite},
               {"selection", info.selection},
               {"seed", info.seed},
               {"version", info.version},
               {"machine", info.machine},
               {"provenance", info.provenance},
               {"part", info.part},
               {"started_ms", info.started_ms},
               {"left_out", info.left_out},
               {"rotate", info.rotate},
               {"repeat", info.repeat},
               {"retries", info.retries},
               {"repro", info.repro}});
}

RunInfo info_from_text(std::string_view text) {
  const json in = parse_column(text, "run.info", info_kinds);
  RunInfo out;
  out.suite = in.at("suite");
  out.selection = in.at("selection");
  out.seed = in.at("seed");
  out.version = in.at("version");
  out.machine = in.at("machine");
  out.part = in.value("part", json::object());
  out.provenance = in.value("provenance", json::object());  // runs of earlier versions have none
  out.started_ms = in.at("started_ms");
  out.left_out = in.value("left_out", std::int64_t{0});
  out.rotate = in.value("rotate", "");
  out.repeat = in.value("repeat", std::int64_t{1});
  out.retries = in.value("retries", std::int64_t{0});
  out.repro = in.value("repro", json::object());  // runs of earlier versions have none
  return out;
}

std::int64_t seal_run(std::string_view info, std::int64_t planned) { return seal({info, fmt::to_string(planned)}); }

std::int64_t seal_session(std::int64_t n, const Session& session) {
  return seal({fmt::to_string(n), argv_text(session.argv), fmt::to_string(session.pid), fmt::to_string(session.started_ms),
               fmt::to_string(session.ended_ms), session.ending ? name(*session.ending) : "", session.reason});
}

std::string argv_text(const std::vector<std::string>& argv) { return dump(json(argv)); }
std::vector<std::string> argv_from_text(std::string_view text) {
  return parse_column(text, "sessions.argv", json::array({"text"}));
}

}  // namespace kvcts::store
