// Naming the cause: find the simplest transformation of the right map whose predicted bytes equal all observed bytes.
//
// A hypothesis proposes variants of the case (the truth transformed: another order, other ids, fewer tokens); the oracle writes what
// each variant predicts; a variant that predicts every byte is an explanation, anything less is a guess and is called one.
// The diagnoser sees declared layouts, ids, truth, observed bytes and events: never the fault, the expected outcome or the id.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/result.hpp"

namespace kvcts::diagnose {

using ByteView = std::span<const std::uint8_t>;

/// Whole memory files, in the order of regions(case, side).
struct Scene {
  const ResolvedCase& truth;
  int pass{0};
  std::vector<ByteView> producer;            ///< as they are now
  std::vector<ByteView> consumer;            ///< as they are now
  std::vector<ByteView> consumer_before, consumer_expected;
  ByteView output, output_expected;          ///< of the reader; empty = none
  std::vector<nlohmann::json> events;        ///< what workers replied or raised, in order
  std::int64_t wrong_bytes{0};
};

/// One transformation of the right map.
struct Variant {
  std::string fault_class;
  std::string words;                         ///< "written HND, declared NHD"
  ResolvedCase transformed;                  ///< its truth and ids say what the variant predicts on the consumer
};

/// Lists variants, simplest first. One function a family; the table is in hypotheses.cpp.
using Hypothesis = std::function<void(const Scene&, std::vector<Variant>&)>;
const std::vector<Hypothesis>& hypotheses();

/// Answers that need no bytes: an exception that names counts, a reader under another label. Empty class = nothing to say.
Diagnosis from_events(const Scene& scene);
Diagnosis from_reader(const Scene& scene);

/// The whole search, in order: events, reader, nothing moved, variants. Never throws on odd data; says "unexplained" and shows the
/// best partial explanation when none fits.
Diagnosis diagnose(const Scene& scene);

/// What to look at in the code for a class (fault_classes()).
std::string what_to_check(const std::string& fault_class);

}  // namespace kvcts::diagnose
