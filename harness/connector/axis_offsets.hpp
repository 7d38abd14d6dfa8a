// A plane's position is separable: offset + f_L(layer) + f_K(kv) + f_B(block) + f_N(slot) + f_H(head) + f_C(channel).
// The planner works on these tables, so it shares no arithmetic with layout::locate, on which the oracle relies.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts::connector {

/// f_axis(value) in bits for value in [lo, hi); `valid` is false where the plane has no such coordinate.
struct AxisOffsets {
  std::int64_t lo{0};
  std::vector<std::int64_t> bits;
  std::vector<bool> valid;

  bool holds(std::int64_t value) const {
    return value >= lo && value - lo < static_cast<std::int64_t>(bits.size()) && valid[static_cast<std::size_t>(value - lo)];
  }
  std::int64_t at(std::int64_t value) const { return bits[static_cast<std::size_t>(value - lo)]; }
};

/// Walks the digits of every mode of the axis. Size: product of the axis' extents.
AxisOffsets axis_offsets(const layout::Plane& plane, layout::Axis axis);

}  // namespace kvcts::connector
