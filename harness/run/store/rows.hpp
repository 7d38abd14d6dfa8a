// Converts between values and table rows, including the seals. Writer and reader share it, so they cannot disagree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "run/store/run.hpp"

namespace kvcts::store {

/// Columns of `executions`, `phases` and `evidence` of one result.
struct ExecutionRow {
  std::string digest;  ///< "" = not shared
  bool ran{false};
  std::string outcome, phase, fault_class;
  std::int64_t wall_ns{0};
  std::string body;
  std::vector<PhaseTime> phases;
  std::vector<EvidenceFile> evidence;
};
/// Columns of `results`.
struct ResultRow {
  std::string verdict, evidence, waiver, facts;
};

struct SplitResult {
  ExecutionRow execution;
  ResultRow own;
};

/// Splits a result into what an execution produced and what belongs to one id. Evidence texts are cut at 64 KiB each.
SplitResult split(const CaseResult& result);
/// The reverse. Throws an exception (see Db::reading), as all that reads does, if the parts do not make a result.
CaseResult join(const PlannedCase& planned, const ExecutionRow& execution, const ResultRow& own);

nlohmann::json facts_from_text(std::string_view text);

std::string hash(const ExecutionRow& row);
std::int64_t seal_execution(std::string_view hash, std::int64_t first);
std::int64_t seal_result(std::int64_t ordinal, std::int64_t execution, const ResultRow& row);
std::int64_t seal_planned(std::int64_t ordinal, std::string_view id, std::string_view digest, std::string_view execution,
                          std::string_view expected);

std::string expected_text(const std::vector<Expected>& expected);
std::vector<Expected> expected_from_text(std::string_view text);

std::string info_text(const RunInfo& info);
RunInfo info_from_text(std::string_view text);
/// `planned` < 0: no plan yet.
std::int64_t seal_run(std::string_view info, std::int64_t planned);
std::int64_t seal_session(std::int64_t n, const Session& session);
std::string argv_text(const std::vector<std::string>& argv);
std::vector<std::string> argv_from_text(std::string_view text);

}  // namespace kvcts::store
