// Planes cut down to single coordinates. Internal to verify().
#pragma once

#include <optional>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts::probe {

/// The plane at one coordinate of an axis; nullopt where it has no such coordinate. An axis with several places for one
/// coordinate: the first.
std::optional<layout::Plane> fixed(const layout::Plane& plane, layout::Axis axis, std::int64_t at);

/// The plane as one plane a coordinate of the axis.
std::vector<layout::Plane> apart(const layout::Plane& plane, layout::Axis axis);

}  // namespace kvcts::probe
