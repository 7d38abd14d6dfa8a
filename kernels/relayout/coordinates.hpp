// The coordinates of a plane, axis by axis, and their places. Internal to this folder.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/relayout/nest.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels::relayout {

/// One coordinate of an axis and its distance in bits from the plane's offset.
struct Place {
  std::int64_t coord{0};
  std::int64_t bit{0};
};

/// By coordinate, ascending. Needs a plane that layout::validate() accepts.
std::vector<Place> places(const layout::Plane& plane, layout::Axis axis);

/// All axes of a plane.
class Coordinates {
 public:
  explicit Coordinates(const layout::Plane& plane);
  const std::vector<Place>& operator[](layout::Axis axis) const { return axes_[static_cast<std::size_t>(axis)]; }
  std::int64_t count() const;

 private:
  std::array<std::vector<Place>, layout::axis_count> axes_;
};

/// For each axis, the common coordinates; one axis is empty when the planes share none.
std::array<Pairs, layout::axis_count> common(const Coordinates& from, const Coordinates& to);
/// The number of those coordinates.
std::int64_t count(const std::array<Pairs, layout::axis_count>& pairs);

}  // namespace kvcts::kernels::relayout
