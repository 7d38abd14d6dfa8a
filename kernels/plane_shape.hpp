// Classifies once how the rows of a plane lie in memory: which fast way of making them applies.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/axis_table.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels {

/// Equal runs of channels at equal distances: run k holds channels [first + k * channels, + channels) at bit + k * stride of
/// its row.
struct Runs {
  std::int64_t first{0}, channels{0};
  std::int64_t bit{0}, stride{0};
  std::int64_t count{1};
};

enum class Way : std::uint8_t {
  rows,      ///< runs of whole bytes that start at whole words: row by row, run by run
  columns,   ///< single channels apart, rows side by side: channel by channel
  buffered,  ///< other whole bytes: each row goes into a buffer, and its runs from there
  bitwise,   ///< code by code
};

struct PlaneShape {
  /// `channels` are those of the plane; `width` is its codes'.
  PlaneShape(const layout::Plane& plane, const AxisTable& channels, int width);

  std::vector<Runs> runs;
  Way way{Way::bitwise};
  /// Of rows: one past the last channel, and the first.
  std::int64_t first{0}, last{0};
  /// No two elements share a bit (sufficient, not necessary: the strides are nested).
  bool one_to_one{false};
};

}  // namespace kvcts::kernels
