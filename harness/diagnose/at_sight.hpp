// What the bytes of a case with two sides, or the events of its run, say without a search.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "case/case.hpp"
#include "case/result.hpp"

namespace kvcts::diagnose {

using ByteView = std::span<const std::uint8_t>;

/// Whole memory files, in the order of regions(case, side).
struct CaseBytes {
  const ResolvedCase& truth;  ///< without name, expectation and engine
  int pass{0};
  std::vector<ByteView> producer{}, consumer{};                  ///< as they are now
  std::vector<ByteView> consumer_before{}, consumer_expected{};  ///< expected: with what may come along with the last block
  ByteView output{}, output_expected{}, output_before{};         ///< of the reader; empty = none
  std::vector<nlohmann::json> events{};                          ///< what workers replied or raised, in order
  std::int64_t wrong_bytes{0};                                   ///< on the consumer, and in a reader's output
  std::int64_t source_wrong{0};                                  ///< on the producer, which must not change
};

/// Answers that need no bytes: an exception that names counts, a reader under another label, one that never ended. Empty
/// text = no answer.
Diagnosis from_events(const CaseBytes& bytes);
/// After a transfer: these, nothing arrived, an earlier transfer's content, a right cache gathered wrongly, a source changed
/// once it had been sent, codes changed on the way.
Diagnosis at_sight(const CaseBytes& bytes);

/// A right cache gathered wrongly, and a reader that never ended (readers.cpp).
Diagnosis from_gathering(const CaseBytes& bytes);

}  // namespace kvcts::diagnose
