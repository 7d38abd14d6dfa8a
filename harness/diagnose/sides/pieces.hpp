// A right transfer as a list of pieces: runs of bytes that are adjacent on both sides. Faults of code that moves bytes
// without knowing what they are (engines, copy loops) are transformations of this list. Made from the truth alone, never
// from a plan.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnose/sides/diagnose.hpp"

namespace kvcts::diagnose {

struct Piece {
  std::size_t from_file{0}, to_file{0};   ///< of the scene's producer and consumer
  std::int64_t from{0}, to{0}, bytes{0};  ///< offsets in the memory files
  layout::Component component{};
  layout::Coord first{};  ///< its first element, layer, kv and head
  std::int64_t token{0};  ///< its first element's
  std::size_t rank{0};    ///< of the consumer
  std::int64_t from_end() const { return from + bytes; }
  std::int64_t to_end() const { return to + bytes; }
};

/// Ascending by place on the consumer. Empty when a run of 4-bit codes starts inside a byte, or the case has several groups.
std::vector<Piece> pieces_of(const Scene& scene);

/// The same, cut at the end of each row of channels: at most one piece per (plane, layer, kv, head, token).
std::vector<Piece> rows_of(const Scene& scene);

/// What moving the pieces predicts: whole files of the consumer, over the state before the transfer. Ignores parts outside a
/// file.
std::vector<std::vector<std::uint8_t>> moved(const Scene& scene, const std::vector<Piece>& pieces);

}  // namespace kvcts::diagnose
