// Names the cause of a scripted failure. A hypothesis is the intended sequence with one thing wrong. The machine
// plays it, and its prediction is compared with the observation: every byte of every memory at every check, the ending, the
// reports. The scenario's `actual` side is never read: an SearchEvidence holds the intended sequence, the bytes and the
// events.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "case/result.hpp"
#include "diagnose/attributions.hpp"
#include "diagnose/observe.hpp"

namespace kvcts::scenario {

/// A belief about memories under which steps could move their bytes.
struct Claim {
  FaultClass fault_class{};
  std::string words;
  std::map<std::string, std::string> caches;  ///< memory -> layout text
};

/// All that the search may see.
struct SearchEvidence {
  Scenario intended;  ///< without any trace of `actually`
  const AddressSpace& space;
  const Truth& truth;
  Observation& observation;
  const Mismatch& mismatch;
  const Attributions& attributions;
  Expectation& expectation;
  SymbolTable& symbols;
  std::uint64_t seed{1};
  bool whole_only{false};  ///< no part of an explanation is asked for
  std::vector<Claim> claims{};
  bool real{false};  ///< bytes that have no name may be content all the same
};

struct Explanation {
  FaultClass fault_class{};  ///< "" = unexplained
  bool exact{false};         ///< predicts everything observed
  std::string words;
  double share{0};        ///< of the wrong bytes
  bool all_bytes{false};  ///< predicts every byte, but not how it ended or what was reported
  Doubts doubts{};
  bool only_reports{false};   ///< the words say that the reports differ, and no more
  bool recognised{false};     ///< by the kind of all wrong bytes, which the words count; nothing was predicted
  bool ended{false};          ///< the words say how it ended, not why bytes are wrong
  std::vector<Cause> others;  ///< all that fit as well
  std::int64_t tried{0};      ///< hypotheses
  std::string trace{};  ///< a line for each generator that was asked, with its cost, and for what fits, whole or in part
};

/// A guess that explains less of the wrong bytes, less right ones that it contradicts, is none.
inline constexpr double least_share = 0.5;

Explanation explain(SearchEvidence evidence);

/// Of an exact one.
Diagnosis as_diagnosis(const Explanation& why, std::int64_t wrong_bytes);

/// A scenario with its steps as intended; no trace of the actual sequence remains.
Scenario without_faults(const Scenario& scenario);

}  // namespace kvcts::scenario
