// The modes of one axis, multiplied out: its coordinates and how far each is from the plane's offset. A plane is separable:
// a coordinate's bit is the plane's offset plus one such distance per axis, so nothing is looked up per element.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts::kernels {

struct AxisEntry {
  std::int64_t coord{0};
  std::int64_t bit{0};  ///< from the plane's offset
};

class AxisTable {
 public:
  /// Needs a plane that check_plane() accepts.
  AxisTable(const layout::Plane& plane, layout::Axis axis);

  bool has_modes() const { return has_modes_; }
  /// All entries, by coordinate, then by bit.
  const std::vector<AxisEntry>& entries() const { return entries_; }
  /// Whether [lo, hi) has every coordinate, at equal distances; that distance is then stride().
  bool even(std::int64_t lo, std::int64_t hi) const {
    return even_ && lo >= entries_.front().coord && hi <= entries_.back().coord + 1;
  }
  std::int64_t stride() const { return entries_.size() > 1 ? entries_[1].bit - entries_[0].bit : 0; }
  /// The entries with lo <= coord < hi.
  std::span<const AxisEntry> within(std::int64_t lo, std::int64_t hi) const;
  /// Smallest distance between neighbours: shows how inner the axis is. Maximal for an axis of one coordinate.
  std::int64_t pitch() const { return pitch_; }

 private:
  std::vector<AxisEntry> entries_;
  std::int64_t pitch_{INT64_MAX};
  bool has_modes_{false};
  bool even_{false};     ///< gapless, with equal distances
  bool gapless_{false};  ///< one entry for each coordinate from the first to the last
};

/// Where blocks lie. Pools have many, mostly as one mode, which needs no table.
class BlockPlaces {
 public:
  /// Needs a plane that check_plane() accepts.
  explicit BlockPlaces(const layout::Plane& plane);

  /// Calls found(bit) for each place of the block, from the plane's offset: usually one, none where the plane has no such
  /// block.
  template <typename Found>
  void each(std::int64_t block, Found found) const {
    if (table_) {
      for (const AxisEntry& entry : table_->within(block, block + 1)) found(entry.bit);
      return;
    }
    std::int64_t digit = block - first_;
    if (digit < 0) return;
    if (mode_.step != 1) {
      if (digit % mode_.step != 0) return;
      digit /= mode_.step;
    }
    if (digit < mode_.extent) found(digit * mode_.stride);
  }
  /// Smallest distance between neighbours; 0 for a single block.
  std::int64_t pitch() const;
  /// Every block is as far from the first one as in `other`, which has the same blocks; needs no table.
  bool as(const BlockPlaces& other) const {
    return !table_ && !other.table_ && first_ == other.first_ && mode_ == other.mode_;
  }

 private:
  std::int64_t first_;
  layout::Mode mode_;
  std::optional<AxisTable> table_;
};

/// Throws layout::Error unless modes are sane and every bit of the plane is inside `bytes` bytes. Detects every overflow.
void check_plane(const layout::Plane& plane, int width, std::uint64_t bytes);
/// Smallest and largest coordinate of an axis. Throws layout::Error on overflow.
struct Extremes {
  std::int64_t least{0}, most{0};
};
Extremes extremes(const layout::Plane& plane, layout::Axis axis);

}  // namespace kvcts::kernels
