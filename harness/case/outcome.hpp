// How a case can end, in one place: outcomes, phases, evidence, verdicts, fault classes. Reports use these words. A new one:
// an enumerator, its count, and a row of outcome.cpp, without which it does not compile.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "process/phase.hpp"

namespace kvcts {

enum class Outcome : std::uint8_t {
  pass,         ///< every byte of every region as the oracle says
  fail,         ///< wrong bytes, an untyped exception, wrong counts; carries a fault class
  refused,      ///< a clean, typed error before any byte moved
  hang,         ///< a phase passed its deadline; carries phase and stalled/runaway
  crash,        ///< the process under test died or broke the protocol; carries the signal or exit status
  flaky,        ///< of several tries some ended as expected and some did not: never a pass, whatever the last one did
  unsupported,  ///< declared by backend, arch, engine or connector: a constraint of the catalogue
  skipped,      ///< this machine lacks something, named
  not_run,      ///< budget or interruption
  error,        ///< the suite's own fault; never confused with the others
};
inline constexpr int outcome_count = 10;
std::string_view name(Outcome outcome);     ///< "PASS", "FAIL", "REFUSED", ...
std::string_view meaning(Outcome outcome);  ///< a sentence, as `kvcts explain` prints it; of the other vocabularies, too
std::string_view advice(Outcome outcome);   ///< what to do; may be empty
std::optional<Outcome> outcome_from_name(std::string_view name);

std::string_view name(Phase phase);  ///< "resolve", ..., "register", ..., "read back", ...
std::string_view meaning(Phase phase);
std::string_view advice(Phase phase);
std::optional<Phase> phase_from_name(std::string_view name);

enum class Evidence : std::uint8_t { modelled, compiled, executed };
inline constexpr int evidence_count = 3;
std::string_view name(Evidence evidence);
std::string_view meaning(Evidence evidence);
std::string_view advice(Evidence evidence);
std::optional<Evidence> evidence_from_name(std::string_view name);

enum class HangKind : std::uint8_t { stalled, runaway };
std::string_view name(HangKind kind);
std::optional<HangKind> hang_from_name(std::string_view name);

/// What tells a cause that leaves the same bytes from the one that is named.
enum class DiagnosedBy : std::uint8_t {
  nothing,
  count,   ///< it would have moved another number of bytes
  events,  ///< it would have ended, or reported, otherwise
};
std::string_view name(DiagnosedBy what);
std::optional<DiagnosedBy> diagnosed_by_from_name(std::string_view name);

/// The controlled vocabulary of what a fault is, in the order of the project's bug collection. outcome.cpp has its words.
enum class FaultClass : std::uint8_t {
  none,  ///< right, or not known
  axis_permuted,
  kv_split_vs_interleaved,
  wrong_stride,
  wrong_block_size,
  head_shard_mapping,
  layer_missing,
  layer_misrouted,
  region_aliasing,
  scale_lost,
  scale_misplaced,
  scale_swizzle,
  dtype_reinterpreted,
  packed_dim_misread,
  stale_block,
  read_before_ready,
  wrong_block_id,
  truncated,
  over_read,
  int32_overflow,
  misaligned,
  rank_mismatch,
  registration_missing_region,
  identity_collision,
  copy_direction,
  silently_skipped,
  false_success,
  hang_kernel,
  hang_transfer,
  crash,
  raised,
  capability_mismatch,
};
inline constexpr int fault_class_count = 32;  ///< `none` included
std::string_view name(FaultClass fault);      ///< "axis-permuted", ...; "" for none
std::string_view meaning(FaultClass fault);   ///< one sentence
std::string_view advice(FaultClass fault);    ///< what to look at in the code
std::ostream& operator<<(std::ostream& out, FaultClass fault);
/// "" is none.
std::optional<FaultClass> fault_class_from_name(std::string_view name);
/// As its name; from_json throws std::runtime_error for a word that is none.
void to_json(nlohmann::json& out, FaultClass fault);
void from_json(const nlohmann::json& in, FaultClass& fault);
/// All but none.
const std::vector<FaultClass>& fault_classes();

/// What a user requires of a case. Empty fields match anything; a case may accept several.
struct Expected {
  Outcome outcome{Outcome::pass};
  FaultClass fault_class{};    ///< FAIL, HANG, CRASH: primary class
  std::optional<Phase> phase;  ///< phase in which it ended
  std::string contains;        ///< a part of the message that must appear
  bool operator==(const Expected&) const = default;
};

enum class Verdict : std::uint8_t {
  as_expected,
  unexpected,
  xfail,
  xpass,
  expired_waiver,
  skipped,
  not_run,
  error,
};
inline constexpr int verdict_count = 8;
std::string_view name(Verdict verdict);  ///< "as expected", "XFAIL", ...
std::string_view meaning(Verdict verdict);
std::string_view advice(Verdict verdict);
std::optional<Verdict> verdict_from_name(std::string_view name);

}  // namespace kvcts
