// The inner loops of relayout: moving many equal runs of bytes, one version per worthwhile instruction set. Internal to this
// folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvcts::kernels::relayout {

/// n runs of `bytes` bytes, `from` and `to` bytes apart on either side. Runs do not overlap.
struct Runs {
  std::size_t n{0};
  std::int64_t from{0}, to{0};
  std::size_t bytes{0};
};
using MoveRuns = void (*)(std::uint8_t* to, const std::uint8_t* from, const Runs& runs);

/// rows x columns elements: element (r, c) goes from `from` + r * from_row + c * size to `to` + c * to_column + r * size.
struct Tile {
  std::size_t rows{0}, columns{0};
  std::int64_t from_row{0}, to_column{0};
};
using MoveTile = void (*)(std::uint8_t* to, const std::uint8_t* from, const Tile& tile);

struct Moves {
  std::string_view name;
  MoveRuns copy{};
  MoveRuns stream{};        ///< past the caches; other threads see the bytes after drain()
  MoveRuns swap{};          ///< exchanges the nibbles of each byte
  MoveTile transpose[4]{};  ///< elements of 1, 2, 4, 8 bytes
  void (*drain)(){};
};

/// The instruction sets that this CPU has, plainest first.
std::span<const Moves> usable_moves();
/// The one to use: the last of them.
const Moves& best_moves();

}  // namespace kvcts::kernels::relayout
