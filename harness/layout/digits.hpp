// The digits of one axis: its modes by step, descending. Internal to the layout library.
//
// A coordinate offset t of an axis is sum(digit * step). The modes of an axis are *unique* when every t has at most one set
// of digits. That holds when each step is larger than everything the smaller ones can reach:
//   step_i > sum over j > i of (extent_j - 1) * step_j
// Then the digits fall out greedily: digit_i = t / step_i, t -= digit_i * step_i. validate() requires it of every plane.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "layout/checked.hpp"
#include "layout/layout.hpp"

namespace kvcts::layout {

inline constexpr int max_modes = 64;

/// Indices into plane.modes of the modes of one axis whose extent is not 1, by step, descending. No allocation.
struct AxisDigits {
  std::array<std::uint8_t, max_modes> mode;
  int count{0};

  AxisDigits(const Plane& plane, Axis axis) {
    if (plane.modes.size() > max_modes) {
      throw Error("a plane has " + std::to_string(plane.modes.size()) + " modes: expected at most " +
                  std::to_string(max_modes) + "; merge modes of the same axis");
    }
    for (std::size_t i = 0; i < plane.modes.size(); ++i) {
      if (plane.modes[i].axis != axis || plane.modes[i].extent == 1) continue;
      int at = count++;
      for (; at > 0 && plane.modes[mode[at - 1]].step < plane.modes[i].step; --at) mode[at] = mode[at - 1];
      mode[at] = static_cast<std::uint8_t>(i);
    }
  }

  /// How far the modes from index `from` reach: the largest t, 0 when there are none.
  std::int64_t reach(const Plane& plane, int from = 0) const {
    std::int64_t sum = 0;
    for (int i = from; i < count; ++i) {
      const Mode& m = plane.modes[mode[i]];
      sum = checked::add(sum, checked::mul(checked::sub(m.extent, 1), m.step));
    }
    return sum;
  }

  bool unique(const Plane& plane) const {
    for (int i = 0; i < count; ++i) {
      if (plane.modes[mode[i]].step <= reach(plane, i + 1)) return false;
    }
    return true;
  }
};

}  // namespace kvcts::layout
