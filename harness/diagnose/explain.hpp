// Naming the cause of a scripted failure. A hypothesis is the intended sequence with one thing wrong (or two); the machine
// plays it, and what it predicts is held against what was observed: every byte of every memory at every check, how the run
// ended, what was reported. The script's `actual` side is never looked at: an Evidence is made from the intended sequence,
// the bytes and the events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/clues.hpp"
#include "diagnose/observe.hpp"

namespace kvcts::script {

/// What the search may look at.
struct Evidence {
  Script intended;  ///< without anything that `actually` said
  const Arena& arena;
  const Truth& truth;
  Observation& observation;
  const Mismatch& mismatch;
  const Clues& clues;
  Expectation& expectation;
  Names& names;
  std::uint64_t seed{1};
};

struct Explanation {
  std::string fault_class;  ///< "" = unexplained
  bool exact{false};        ///< predicts everything that was observed
  std::string words;
  double share{0};                  ///< of the wrong bytes
  std::vector<std::string> others;  ///< equally good, "class: words"
  std::int64_t tried{0};            ///< hypotheses
};

Explanation explain(Evidence evidence);

/// A script with its steps as intended; nothing of the actual sequence is left in it.
Script without_faults(const Script& script);

}  // namespace kvcts::script
