#include "python/probe/planes.hpp"

#include <algorithm>

#include "kernels/axis_table.hpp"

namespace kvcts::probe {

std::optional<layout::Plane> fixed(const layout::Plane& plane, layout::Axis axis, std::int64_t at) {
  const kernels::AxisTable table(plane, axis);
  layout::Plane out = plane;
  out.origin[axis] = at;
  if (!table.has_modes()) return plane.origin[axis] == at ? std::optional(out) : std::nullopt;
  const auto entries = table.within(at, at + 1);
  if (entries.empty()) return std::nullopt;
  out.offset += entries.front().bit;
  std::erase_if(out.modes, [&](const layout::Mode& mode) { return mode.axis == axis; });
  return out;
}

std::vector<layout::Plane> apart(const layout::Plane& plane, layout::Axis axis) {
  std::vector<layout::Plane> out;
  const layout::Box box = layout::domain(plane);
  for (std::int64_t at = box.lo[axis]; at < box.hi[axis]; ++at) {
    if (auto one = fixed(plane, axis, at)) out.push_back(std::move(*one));
  }
  return out;
}

}  // namespace kvcts::probe
