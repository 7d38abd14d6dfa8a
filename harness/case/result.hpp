// What the suite knows after a case: one record, stored verbatim, shown by every report.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "case/outcome.hpp"
#include "case/tries.hpp"

namespace kvcts {

struct PhaseTime {
  Phase phase{};
  std::int64_t ns{0};
};

/// A wrong byte (or the first of a run) in logical coordinates.
struct WrongByte {
  std::string region;              ///< "consumer/g0/r0/kv.L0"
  std::int64_t offset{0};          ///< bytes from the allocation's start; negative or beyond the end = guard
  std::string expected, observed;  ///< hex
  std::string where;  ///< "K layer 0 block 3 slot 2 head 1 channel 0..3" or "padding", "guard below", "free block"
};

/// How the text of a diagnosis begins that is a guess, or none.
inline constexpr std::string_view not_identified = "cause not identified";

/// What may have gone wrong.
struct Cause {
  FaultClass fault_class{};
  std::string words;      ///< "written HND, read as NHD"
  double share{1};        ///< of the wrong bytes that it predicts
  bool competing{false};  ///< about as likely as the one that is named, and nothing that was observed tells them apart
  DiagnosedBy diagnosed_by{};
  bool operator==(const Cause&) const = default;
};

/// "axis-permuted: written HND, read as NHD".
std::string to_string(const Cause& cause);

struct Diagnosis {
  FaultClass fault_class{};  ///< primary class, "" = none
  bool exact{false};         ///< explains every observed byte; otherwise a guess, and labelled so
  std::string text;          ///< "written HND, read as NHD: explains 100 % of 31,744 wrong bytes"
  std::string what_to_do;
  std::vector<Cause> causes{};  ///< the one that is named, or the best guess; then others that explain as much
  bool sure{false};             ///< exact, all causes that explain as much are of its class, and nothing is in doubt
};

/// Why the cause that is named may not be the one, besides causes of other classes that explain as much.
struct Doubts {
  bool cut{false};                         ///< the search reached its limit before all other causes were tried
  bool other_count{false};                 ///< it predicts every byte, but another number of bytes moved
  std::vector<std::int64_t> undeclared{};  ///< its numbers that nothing in the case declares
  std::string unexplained_part{};          ///< what it leaves open
};

/// Names the first of causes that predict every byte, and alone decides whether it is sure. `extent`: what it explains, in
/// words ("" = it says so).
Diagnosis named(std::vector<Cause> causes, const std::string& extent, const Doubts& doubts = {});
/// "explains 100 % of 31,744 wrong bytes"; "" for none.
std::string explains_all(std::int64_t wrong_bytes);

/// A rule that was read off the bytes, and how many it covers.
struct Finding {
  std::string text;  ///< "C, head 0, tokens 16..31 (block 3): holds head 3 (512 bytes)"
  std::int64_t bytes{0};
  bool vague{false};   ///< says where, but not in what order
  std::string kind{};  ///< what happened x the axes that bound it, "not written by layer, K/V"; "" = it is of pieces
  std::vector<std::string>
      pieces{};  ///< rules of pieces of the transfer that fit too: "every piece of an odd length is ..."
  bool operator==(const Finding&) const = default;
};

/// The first of them, for a message: "C: not written (64 bytes); C2: ... (32 bytes); and 3 more".
std::string in_a_line(const std::vector<Finding>& what_happened);

/// Of one side's memory over all passes, guards included: 16 hex digits before the transfer and after it; "" = not computed.
/// Bytes that the oracle leaves open (scene/oracle/tail.hpp) count as it would have written them, so correct memory has one
/// digest.
struct SideDigests {
  std::string before, after;
  bool operator==(const SideDigests&) const = default;
};
struct Digests {
  SideDigests producer, consumer;
  bool operator==(const Digests&) const = default;
};

/// What the checker found in a case's memory, and why: its answer to compare, whoever performed the steps.
struct Report {
  Outcome outcome{Outcome::error};  ///< of bytes and counts; also of how it ended, if our machine performed it
  std::optional<Phase> phase;       ///< if not PASS; none: compare
  std::optional<HangKind> hang;
  std::string signal, message;
  std::string state;        ///< how much had arrived, in words; "" = not asked
  bool all_arrived{false};  ///< the state says that every byte had
  bool source_changed{false};
  Diagnosis diagnosis;
  std::vector<Finding> what_happened;  ///< to the wrong bytes at the first check that has any, the largest share first
  std::int64_t checked_bytes{0}, expected_bytes{0}, wrong_bytes{0};
  std::vector<WrongByte> first_wrong;
  Digests digests;
  std::int64_t moved_bytes{0};         ///< by our machine
  std::vector<nlohmann::json> events;  ///< what its steps reported, in order
  std::int64_t tried{0};               ///< explanations
  std::string trace;                   ///< of them, if it was asked for
  nlohmann::json picture;              ///< as in CaseResult
  std::int64_t compare_ns{0}, diagnose_ns{0};
};

/// Whether a case's memory changed since the checker last compared it.
struct LateWrite {
  bool changed{false};
  std::int64_t bytes{0};  ///< that differ from what they must be by now; 0: all of the transfer has arrived
  std::string message;
};

struct EvidenceFile {
  std::string kind;  ///< "stack", "stdout", "stderr", "status", "note"
  std::string text;  ///< capped at 64 KiB
};

struct CaseResult {
  std::string id;
  std::string case_digest;
  std::string execution;  ///< digest without arch: results with the same one share an execution
  std::uint64_t seed{0};
  Outcome outcome{Outcome::not_run};
  std::optional<Phase> phase;  ///< where it ended, if not PASS
  std::optional<HangKind> hang;
  std::string signal;   ///< CRASH: "SIGSEGV", "exit 0", "protocol"
  std::string message;  ///< one or two sentences: cause, numbers, what to do
  Diagnosis diagnosis;
  Evidence evidence{Evidence::modelled};
  Verdict verdict{Verdict::not_run};
  std::string waiver;  ///< name of the waiver that applied
  Tries tries;         ///< if the case ran more than once; the other fields describe its first failing try, or the last
  std::vector<PhaseTime> phases;
  std::int64_t wall_ns{0};
  std::int64_t peak_bytes{0};  ///< case memory plus the worker's high-water mark
  std::int64_t checked_bytes{0};
  std::int64_t planned_bytes{0}, moved_bytes{0}, expected_bytes{0};
  std::int64_t copies{0};
  std::int64_t wrong_bytes{0};
  std::vector<WrongByte> first_wrong;
  std::vector<Finding> what_happened;  ///< as in Report
  Digests digests;
  std::string worker;              ///< "lane0/worker7"
  std::int64_t worker_ordinal{0};  ///< how many cases this worker had run before
  std::string ran_before;          ///< id of the case that this worker ran just before
  std::vector<EvidenceFile> evidence_files;
  nlohmann::json facts = nlohmann::json::object();  ///< axis values; engine version; transport selected
  nlohmann::json picture;                           ///< data for drawing a failure (report/picture.hpp); null = none
};

nlohmann::json to_json(const CaseResult& result);
CaseResult result_from_json(const nlohmann::json& json);
nlohmann::json to_json(const Report& report);
Report report_from_json(const nlohmann::json& json);
nlohmann::json to_json(const LateWrite& late);
LateWrite late_write_from_json(const nlohmann::json& json);

}  // namespace kvcts
