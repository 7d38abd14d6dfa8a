// How a case can end, in one place: outcomes, phases, evidence, verdicts. Reports use these words.
#pragma once

#include <cstdint>
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
std::string_view name(Outcome outcome);  ///< "PASS", "FAIL", "REFUSED", ...
std::optional<Outcome> outcome_from_name(std::string_view name);

std::string_view name(Phase phase);  ///< "resolve", ..., "register", ..., "read back", ...
std::optional<Phase> phase_from_name(std::string_view name);

enum class Evidence : std::uint8_t { modelled, compiled, executed };
inline constexpr int evidence_count = 3;
std::string_view name(Evidence evidence);
std::optional<Evidence> evidence_from_name(std::string_view name);

enum class HangKind : std::uint8_t { stalled, runaway };
std::string_view name(HangKind kind);
std::optional<HangKind> hang_from_name(std::string_view name);

/// The controlled vocabulary of fault classes ("axis-permuted", ...), in the order of the project's bug collection.
struct FaultClass {
  std::string_view name;
  std::string_view meaning;  ///< one sentence
  std::string_view check;    ///< what to look at in the code
};
const std::vector<FaultClass>& fault_classes();
bool is_fault_class(std::string_view name);

/// What a user requires of a case. Empty fields match anything; a case may accept several.
struct Expected {
  Outcome outcome{Outcome::pass};
  std::string fault_class;     ///< FAIL, HANG, CRASH: primary class
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
std::optional<Verdict> verdict_from_name(std::string_view name);

}  // namespace kvcts
