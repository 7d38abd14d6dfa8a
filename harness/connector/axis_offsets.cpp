#include "connector/axis_offsets.hpp"

#include <algorithm>

namespace kvcts::connector {

AxisOffsets axis_offsets(const layout::Plane& plane, layout::Axis axis) {
  // Pairs (coordinate, bits) of all digit combinations, built one mode at a time.
  std::vector<std::pair<std::int64_t, std::int64_t>> points{{plane.origin[axis], 0}};
  for (const auto& mode : plane.modes) {
    if (mode.axis != axis) continue;
    std::vector<std::pair<std::int64_t, std::int64_t>> next;
    next.reserve(points.size() * static_cast<std::size_t>(mode.extent));
    for (std::int64_t digit = 0; digit < mode.extent; ++digit) {
      for (const auto& [coordinate, bits] : points) {
        next.emplace_back(coordinate + digit * mode.step, bits + digit * mode.stride);
      }
    }
    points = std::move(next);
  }
  AxisOffsets out;
  const auto [low, high] = std::minmax_element(points.begin(), points.end());
  out.lo = low->first;
  const auto size = static_cast<std::size_t>(high->first - low->first + 1);
  out.bits.assign(size, 0);
  out.valid.assign(size, false);
  for (const auto& [coordinate, bits] : points) {
    out.bits[static_cast<std::size_t>(coordinate - out.lo)] = bits;
    out.valid[static_cast<std::size_t>(coordinate - out.lo)] = true;
  }
  return out;
}

}  // namespace kvcts::connector
