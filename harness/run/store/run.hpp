// What a run store holds, as values.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/outcome.hpp"
#include "case/result.hpp"

namespace kvcts::store {

/// How a run was started; written once.
struct RunInfo {
  std::string suite;      ///< "smoke"; a file name for --file
  std::string selection;  ///< the query as given: globs, axis expressions, cover, shard, budget
  std::uint64_t seed{0};
  std::string version;                                ///< of kvcts
  nlohmann::json machine = nlohmann::json::object();  ///< facts found by `kvcts doctor`
  nlohmann::json provenance =
      nlohmann::json::object();  ///< commit, digests of cases and golden tensors, host, CI job (cli/provenance.hpp)
  nlohmann::json part = nlohmann::json::object();  ///< of a shard: {shard, shards, whole, selection, places}, see merge.hpp;
                                                   ///< times: digest of a cut by time
  std::int64_t started_ms{0};                      ///< Unix time; 0 = now
  nlohmann::json repro = nlohmann::json::object();  ///< what is needed to run a case again (report/repro.hpp)
  std::int64_t repeat{1}, retries{0};               ///< runs of every case; extra runs of every failed case
  std::string rotate;                               ///< the file of --rotate; "" = none
  std::int64_t left_out{0};                         ///< cases of the selection that --budget left out of the plan
};

/// Marks a session that may end with status 0 although something planned was not run.
inline constexpr const char* allow_incomplete_flag = "--allow-incomplete";

/// How a session ended; budget: it was to start no further case (--budget, --max-failures). Without an ending: killed.
enum class Ending : std::uint8_t { complete, interrupted, budget };
std::string_view name(Ending ending);

/// One process that wrote to the run: the first, and one per --resume.
struct Session {
  std::vector<std::string> argv;
  std::int64_t pid{0};
  std::int64_t started_ms{0}, ended_ms{0};  ///< Unix time; ended_ms of a killed one is that of its last commit
  std::optional<Ending> ending;
  std::string reason;  ///< of an early end: "budget of 60 s used up", "stopped after 1 failure (--max-failures)", "SIGINT"
};

/// A case that the run must decide.
struct PlannedCase {
  std::string id;
  std::string digest;              ///< of all resolved data (kvcts::digest)
  std::string execution;           ///< digest without arch
  std::vector<Expected> expected;  ///< expected outcomes; may include NOT_RUN
  bool operator==(const PlannedCase&) const = default;
};

/// One planned case and its result. Every planned id appears exactly once.
struct Row {
  std::int64_t ordinal{0};  ///< position in the plan, from 0
  PlannedCase planned;
  bool decided{false};           ///< a result is in the store
  CaseResult result;             ///< if not decided: NOT_RUN with the reason as message
  bool declared_not_run{false};  ///< not decided, as the run or the case had announced; otherwise a failure
  std::int64_t executions{0};    ///< 1 if the stored execution belongs to this row, else 0
  std::string shared_with;       ///< if 0 and decided: id of the case that owns the execution
};

/// How a plan differs from the one in the store.
struct Drift {
  std::int64_t added{0}, removed{0},
      changed{0};                  ///< ids only in the new plan, only in the store, in both with another digest
  std::vector<std::string> first;  ///< at most ten lines "changed: <id> (digest a1b2 -> c3d4)"
  explicit operator bool() const { return added + removed + changed != 0; }
  std::string text() const;  ///< one clause without advice
};

nlohmann::json to_json(const Expected& expected);
Expected expected_from_json(const nlohmann::json& json);

/// What two runs do not have in common beside their cases: a package's version, the host, the suite, kvcts itself.
struct Difference {
  std::string name, before, after;  ///< "" = it has none
};
std::vector<Difference> differences(const RunInfo& before, const RunInfo& after);

/// Why the run had no sandbox, from its provenance ("none: <why>"); "": it had one, or this is unknown.
std::string why_not_isolated(const RunInfo& info);

/// Current Unix time in milliseconds; and as "2026-03-01T12:00:00Z".
std::int64_t now_ms();
std::string utc(std::int64_t unix_ms);

}  // namespace kvcts::store
