#include "run/store/rows.hpp"

#include <fmt/format.h>

#include "run/store/counts.hpp"
#include "run/store/error.hpp"
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

template <typename F>
auto in_words(const char* what, F&& parse) {
  try {
    return parse();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Damaged(fmt::format("{} does not parse ({})", what, error.what()));
  }
}

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
  return in_words("a stored result", [&] {
    json body = json::parse(execution.body);
    body["id"] = planned.id;
    body["case_digest"] = planned.digest;
    body["execution"] = execution.digest;
    body["verdict"] = own.verdict;
    if (!own.waiver.empty()) body["waiver"] = own.waiver;
    body["evidence"] = own.evidence;
    body["facts"] = json::parse(own.facts);
    body["phases"] = json::array();
    CaseResult result = result_from_json(body);
    result.phases = execution.phases;
    result.evidence_files = execution.evidence;
    return result;
  });
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

std::vector<Expected> expected_from_text(std::string_view text) {
  return in_words("a stored expected outcome", [&] {
    std::vector<Expected> out;
    for (const auto& item : json::parse(text)) out.push_back(expected_from_json(item));
    return out;
  });
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
  return in_words("the stored run description", [&] {
    const json in = json::parse(text);
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
  });
}

std::int64_t seal_run(std::string_view info, std::int64_t planned) { return seal({info, fmt::to_string(planned)}); }

std::int64_t seal_session(std::int64_t n, const Session& session) {
  return seal({fmt::to_string(n), argv_text(session.argv), fmt::to_string(session.pid), fmt::to_string(session.started_ms),
               fmt::to_string(session.ended_ms), session.ending ? name(*session.ending) : "", session.reason});
}

std::string argv_text(const std::vector<std::string>& argv) { return dump(json(argv)); }

}  // namespace kvcts::store
