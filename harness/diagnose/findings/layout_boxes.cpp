#include "diagnose/findings/layout_boxes.hpp"

namespace kvcts::findings {

LayoutBox plane_of(const layout::Plane& plane) {
  using L = layout::Axis;
  const layout::Box box = layout::domain(plane);
  LayoutBox out;
  out.bits = layout::bits(plane.dtype);
  const auto component = static_cast<std::int64_t>(plane.component);
  out.low[ContentAxis::component] = component, out.high[ContentAxis::component] = component + 1;
  for (const auto& [axis, of] : {std::pair(ContentAxis::layer, L::layer), std::pair(ContentAxis::kv, L::kv),
                                 std::pair(ContentAxis::block, L::block), std::pair(ContentAxis::slot, L::slot),
                                 std::pair(ContentAxis::head, L::head), std::pair(ContentAxis::channel, L::channel)})
    out.low[axis] = box.lo[of], out.high[axis] = box.hi[of];
  if (plane.component == layout::Component::global_scale)
    for (const ContentAxis axis : per_token) out.low[axis] = none, out.high[axis] = 0;
  return out;
}

}  // namespace kvcts::findings
