// The inner loops, once per instruction set that is worth a copy, chosen when the program runs. Plain function pointers, no
// ifuncs: they work in static libraries and under sanitizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvcts::kernels {

/// One row to write: its key, where it starts, and its OR mask (which carries the scale digits of 8-bit and 4-bit codes).
struct LaneRow {
  std::uint64_t key{0};
  std::uint8_t* out{nullptr};
  std::uint32_t or_mask{0};
  std::uint32_t digit{0};  ///< scale digit of channel 0; 16-bit and 32-bit scales only
};

/// What all rows of a batch have in common.
struct LaneShape {
  std::uint32_t first_word{0};
  std::size_t bytes{0};  ///< of each row; the last word may be cut
  std::uint32_t and_mask{0xffffffffu};
};

/// What happens to a word between the masks and memory.
enum class LaneKind : std::uint8_t {
  plain,    ///< nothing
  swapped,  ///< nibbles exchanged: high nibble first
  digit16,  ///< 16-bit scales: bits 2..3 of both codes from digit and channel
  digit32,  ///< 32-bit scales
};
inline constexpr int lane_kinds = 4;

using WriteRows = void (*)(std::span<const LaneRow>, const LaneShape&);
/// How many of n bytes differ.
using CountDifferences = std::size_t (*)(const std::uint8_t*, const std::uint8_t*, std::size_t);

struct Isa {
  std::string_view name;
  WriteRows write[lane_kinds]{};
  CountDifferences count{};

  WriteRows rows(LaneKind kind) const { return write[static_cast<std::size_t>(kind)]; }
};

/// The instruction sets that this CPU has, plainest first.
std::span<const Isa> usable_isas();
/// The one to use: the last of them.
const Isa& best_isa();

}  // namespace kvcts::kernels
