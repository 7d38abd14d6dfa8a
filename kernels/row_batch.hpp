// Rows of a plane for the inner loops: keys side by side, and where the rows lie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/axis_table.hpp"
#include "kernels/isa.hpp"
#include "kernels/row_writer.hpp"

namespace kvcts::kernels {

/// Rows at equal distances: row `first` + k lies at bit + k * pitch.
struct RowGroup {
  std::size_t first{0}, count{0};
  std::int64_t bit{0};
  std::int64_t pitch{0};  ///< 0 for a single row
};

/// The rows of one block starting at one slot, in memory order, for token 0 in that slot. Blocks differ in their start and
/// their tokens.
struct RowPattern {
  std::int64_t first_slot{-1}, tokens{-1};
  std::vector<std::uint64_t> who;         ///< head + (token << 20)
  std::vector<std::uint32_t> or_mask[4];  ///< by the digit of token, layer and kv; [0] alone unless it is a scale
  std::vector<RowGroup> groups;

  RowPattern(const AxisTable& heads, std::span<const AxisEntry> slots, const RowWriter& writer);
  std::size_t rows() const { return who.size(); }
};

class RowBatch {
 public:
  /// Appends a block's rows: `base` is their tag_base(), `token` the one in the first slot, `digit` that of token, layer and
  /// kv.
  void add(const RowPattern& pattern, std::uint64_t base, std::uint64_t token, std::uint32_t digit, std::int64_t bit);
  std::size_t rows() const { return rows_; }
  void clear();

  /// Makes the keys. Valid until rows are added.
  RowKeys keys();
  const std::vector<RowGroup>& groups() const { return groups_; }
  std::uint64_t key(std::size_t row) const { return mix(states_[row]); }
  std::uint32_t or_mask(std::size_t row) const { return or_masks_[row]; }

 private:
  std::size_t rows_{0};  // the vectors below keep their largest size
  std::vector<std::uint64_t> states_;
  std::vector<std::uint32_t> or_masks_, low_, high_;
  std::vector<RowGroup> groups_;
};

}  // namespace kvcts::kernels
