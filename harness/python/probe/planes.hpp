// Planes cut down to single coordinates. Internal to verify().
#pragma once

#include <optional>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts::probe {

/// The plane at one coordinate of an axis; nullopt if it has no such coordinate. If an axis has several places for
/// one coordinate: the first.
std::optional<layout::Plane> fixed(const layout::Plane& plane, layout::Axis axis, std::int64_t at);

/// Splits the plane into one plane per coordinate of the axis.
std::vector<layout::Plane> apart(const layout::Plane& plane, layout::Axis axis);

}  // namespace kvcts::probe
