// Names the cause: finds the simplest transformation of the right map whose predicted bytes equal all observed bytes.
//
// A hypothesis proposes variants of the case (the truth transformed: another order, other ids, fewer tokens). The oracle
// writes what each variant predicts. A variant that predicts every byte is an explanation; anything less is a guess, and
// labelled so. The diagnoser sees declared layouts, ids, truth, observed bytes and events: never the fault, the expected
// outcome or the id.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
  std::vector<ByteView> producer;  ///< as they are now
  std::vector<ByteView> consumer;  ///< as they are now
  std::vector<ByteView> consumer_before, consumer_expected;
  ByteView output, output_expected;           ///< of the reader; empty = none
  std::vector<nlohmann::json> events;         ///< what workers replied or raised, in order
  std::int64_t wrong_bytes{0};                ///< on the consumer, and in a reader's output
  std::int64_t source_wrong{0};               ///< on the producer, which must not change
  std::vector<ByteView> producer_expected{};  ///< set where source_wrong is not 0
  ByteView output_before{};
};

/// Maps that moved the tokens in place of the truth: one cache per rank of group 0.
struct Maps {
  std::vector<layout::Cache> producer, consumer;
};

/// One transformation of the right map.
struct Variant {
  FaultClass fault_class{};
  std::string words;           ///< "written HND, declared NHD"
  ResolvedCase transformed;    ///< its truth and ids say what the variant predicts on the consumer
  std::optional<Maps> maps{};  ///< if set: what moving the tokens of `transformed` through these maps predicts
  struct Predicted {
    std::vector<std::vector<std::uint8_t>> consumer, producer;  ///< whole files; producer empty: unchanged
  };
  std::optional<Predicted> images{};  ///< if set: the prediction itself
};

/// Bytes of one consumer file if `maps` had moved the tokens of group 0: from the producer's real bytes, over the state
/// before the transfer. `believed`: the requests and block sizes used, if not those of the truth.
void predict_moved(const Scene& scene, const Maps& maps, std::size_t consumer_file, std::span<std::uint8_t> out,
                   const ResolvedCase* believed = nullptr);

/// Takes the variants of a family one at a time, trying and dropping each: a prediction is as large as the case's memory.
class Proposals {
 public:
  explicit Proposals(std::function<void(const Variant&)> attempt) : try_(std::move(attempt)) {}
  void push_back(const Variant& variant) { try_(variant); }

 private:
  std::function<void(const Variant&)> try_;
};

/// Proposes variants of one family, simplest first. The table in hypotheses.cpp orders the families, simplest first; the
/// first one that explains every byte ends the search.
using Hypothesis = std::function<void(const Scene&, Proposals&)>;
const std::vector<Hypothesis>& hypotheses();

/// Answers that need no bytes: an exception that names counts, a reader under another label. Empty class = no answer.
Diagnosis from_events(const Scene& scene);
Diagnosis from_reader(const Scene& scene);
/// A right cache gathered wrongly, and a reader that never ended (readers.cpp).
Diagnosis from_gathering(const Scene& scene);

/// What needs no search: events, reader, nothing moved, a right cache gathered wrongly. Empty text = no answer.
Diagnosis at_sight(const Scene& scene);
/// The variants. Never throws on odd data; says not_identified and shows the best partial explanation, without a class, when
/// none fits.
Diagnosis search(const Scene& scene);
/// Pieces of the transfer that hold others, whatever they are: fits much, and tells little.
Diagnosis pieces_told_one_by_one(const Scene& scene);
/// One after the other.
Diagnosis diagnose(const Scene& scene);
/// Bytes that diagnose() holds at once besides the scene's: tails copied with blocks, and up to three predictions.
double memory_of_diagnosis(const ResolvedCase& resolved, bool source_wrong);

}  // namespace kvcts::diagnose
