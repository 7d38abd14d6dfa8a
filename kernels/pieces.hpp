// Where the bytes of a tile (sinks.hpp) go in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvcts::kernels {

/// The tile's bytes in equal consecutive pieces; in memory, two loops: piece (o, k) at at + o * outer_pitch + k * pitch.
struct Pieces {
  std::int64_t at{0};
  std::size_t bytes{0};
  std::size_t count{1};
  std::int64_t pitch{0};
  std::size_t outer{1};
  std::int64_t outer_pitch{0};

  /// The same with adjacent pieces merged.
  Pieces joined() const {
    Pieces out = *this;
    if (out.count == 1 || out.pitch == static_cast<std::int64_t>(out.bytes)) out.bytes *= out.count, out.count = 1;
    if (out.count == 1 && (out.outer == 1 || out.outer_pitch == static_cast<std::int64_t>(out.bytes))) {
      out.bytes *= out.outer, out.outer = 1;
    }
    return out;
  }
  bool one() const { return count == 1 && outer == 1; }
};

template <typename Each>
void each_piece(const Pieces& pieces, Each each) {
  std::int64_t row = pieces.at;
  for (std::size_t o = 0; o < pieces.outer; ++o, row += pieces.outer_pitch) {
    std::int64_t at = row;
    for (std::size_t k = 0; k < pieces.count; ++k, at += pieces.pitch) each(at);
  }
}

}  // namespace kvcts::kernels
