// The inner loops, one version per worthwhile instruction set, selected at run time. Plain function pointers, no ifuncs:
// they work in static libraries and under sanitizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/pieces.hpp"

namespace kvcts::kernels {

/// Rows of channels, with the halves of their keys side by side. The OR mask also carries a scale's digits.
struct RowKeys {
  const std::uint32_t* low{nullptr};
  const std::uint32_t* high{nullptr};
  const std::uint32_t* or_mask{nullptr};
  std::size_t rows{0};

  /// Without keys, only the number of rows.
  RowKeys part(std::size_t first, std::size_t count) const {
    return low == nullptr ? RowKeys{nullptr, nullptr, nullptr, count}
                          : RowKeys{low + first, high + first, or_mask + first, count};
  }
};

/// Rows in memory order: words [first_word, ...) of each row, `bytes` bytes of them (the last word may be cut), row r at out
/// + r * pitch. Repeated `runs` times: run k begins k * run_words words later, at out + k * run_pitch.
struct RowShape {
  std::uint32_t first_word{0};
  std::size_t bytes{0};
  std::ptrdiff_t pitch{0};
  std::uint32_t and_mask{0xffffffffu};
  std::size_t runs{1};
  std::uint32_t run_words{0};
  std::ptrdiff_t run_pitch{0};
};

/// Rows side by side: one channel's codes of all rows, row 0 first, then the next channel's, packed. 4-bit codes need an
/// even number of rows.
struct ColumnShape {
  std::uint32_t first_word{0};
  std::size_t words{0};
  std::uint32_t and_mask{0xffffffffu};
  int width{32};
  bool high_nibble_first{false};
};

/// What happens to a word between the masks and memory.
enum class LaneKind : std::uint8_t {
  plain,    ///< nothing
  swapped,  ///< nibbles exchanged: high nibble first
  digit16,  ///< 16-bit scales: bits 2..3 of both codes advance with the channel
  digit32,  ///< 32-bit scales: likewise
};
inline constexpr int lane_kinds = 4;

struct Isa {
  std::string_view name;
  void (*rows[lane_kinds])(const RowKeys&, const RowShape&, std::uint8_t* out){};
  void (*columns[lane_kinds])(const RowKeys&, const ColumnShape&, std::uint8_t* out){};  ///< `swapped` is as `plain`
  /// Row keys from what goes into their last mix().
  void (*keys)(const std::uint64_t* states, std::size_t n, std::uint32_t* low, std::uint32_t* high){};
  /// How many of n bytes differ.
  std::size_t (*count)(const std::uint8_t*, const std::uint8_t*, std::size_t n){};
  /// Does `seen` hold the tile (where its first piece is)?
  bool (*equal)(const std::uint8_t* seen, const std::uint8_t* tile, const Pieces& pieces){};
  /// memcpy past the caches, for bytes that are not read soon. Other threads' ordinary stores see it after drain().
  void (*stream)(std::uint8_t* to, const std::uint8_t* from, std::size_t n){};
  void (*drain)(){};

  auto write_rows(LaneKind kind) const { return rows[static_cast<std::size_t>(kind)]; }
  auto write_columns(LaneKind kind) const { return columns[static_cast<std::size_t>(kind)]; }
};

/// The instruction sets that this CPU has, plainest first.
std::span<const Isa> usable_isas();
/// The one to use: the last of them.
const Isa& best_isa();

}  // namespace kvcts::kernels
