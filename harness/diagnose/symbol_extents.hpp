// Who is where, run by run and from two passes: for content of which an attribution for every byte would take too much
// memory.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnose/attributions.hpp"

namespace kvcts::scenario {

/// Bytes in which what must be there and what is there go on together.
struct SymbolExtent {
  Attribution first;
  std::int64_t bytes{1}, channels{1};
  SymbolId is{hole};     ///< of the first byte that is there; hole: all are like the first, or poison
  BufferAddress from{};  ///< holds the same bytes, in another memory if there is one; buffer -1: none, or not known
  bool follows{false};   ///< in what a step read: what lies, wrongly, at `from`
};

/// At the first check with wrong bytes, by buffer and offset. Looks up wrong bytes by their values in one pass over the
/// names; a code that lies alone, among others, is unknown. Empty: more than two million runs.
std::vector<SymbolExtent> symbol_extents(const Observation& observation, const Mismatch& mismatch, Expectation& expectation,
                                         const AddressSpace& space, const SymbolTable& symbols, std::uint64_t seed);

}  // namespace kvcts::scenario
