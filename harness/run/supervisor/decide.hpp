// The one place that turns what happened to a case into its outcome, class and text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "case/result.hpp"

namespace kvcts::supervisor {

/// How the part of a case that runs code under test ended.
struct PhaseResult {
  enum class Kind { completed, refused, raised, hung, crashed, skipped, error };
  Kind kind{Kind::completed};
  Phase phase{Phase::transfer};  ///< where
  std::string call;              ///< the call that ends something in which it happened: "release()"; else ""
  std::string role;              ///< which worker: "producer", "consumer", "both", "checker"
  std::string type;              ///< raised: "ValueError"
  std::string text;              ///< the other side's text
  std::string at;                ///< where it happened, as they report it
  std::string signal;            ///< crashed: "SIGSEGV", "exit 0", "protocol", "memory limit", "left a process behind"
  std::optional<HangKind> hang;
  std::string progress;      ///< "3 of 4,294,967,192"
  std::string note;          ///< of the status page
  std::int64_t after_ms{0};  ///< hung: since the phase was entered
  std::int64_t deadline_ms{0};
  std::optional<std::int64_t> moved;  ///< refused, raised: bytes that had moved, as the code under test reports
};

/// As the diagnoser receives it ("events" of the checker's compare request); null for a completed case.
nlohmann::json event_of(const PhaseResult& ended);

/// Fills outcome, phase, hang, signal, message, diagnosis and the numbers. `compared`: what the checker found; none =
/// it was not asked, so nothing is said about the data.
void decide(const PhaseResult& ended, const std::optional<Report>& compared, CaseResult& result);

/// If the case passed, checks what the engine's entry demands of its facts (`path`). `seen`: the facts; null = it
/// reported none.
void decide_path(const nlohmann::json& path, const nlohmann::json& seen, CaseResult& result);

/// The case's memory changed after its result was known. `ended`: what the transfer had reported by then. `call`: the
/// call that ends something in which it happened; "" = spontaneously, some time later.
void decide_late_write(const LateWrite& write, PhaseResult::Kind ended, CaseResult& result, const std::string& call = "");

/// Processes outlived the case. `orphan`: which, in words.
void decide_orphan(const std::string& orphan, CaseResult& result);

/// The workers ended badly after the case, which was their last.
void decide_departure(const PhaseResult& ended, CaseResult& result);

}  // namespace kvcts::supervisor
