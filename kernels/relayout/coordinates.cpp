#include "kernels/relayout/coordinates.hpp"

#include <algorithm>
#include <string>

namespace kvcts::kernels::relayout {
namespace {

using layout::Axis;

/// No real axis comes near, but a mistyped extent does.
constexpr std::int64_t most_coordinates = std::int64_t{1} << 28;

}  // namespace

std::vector<Place> places(const layout::Plane& plane, Axis axis) {
  std::vector<Place> all{{plane.origin[axis], 0}};
  for (const layout::Mode& mode : plane.modes) {
    if (mode.axis != axis || mode.extent == 1) continue;
    const auto n = static_cast<std::int64_t>(all.size());
    if (n > most_coordinates / mode.extent) {
      throw layout::Error("axis " + std::string(layout::name(axis)) + " of a plane has more than " +
                          std::to_string(most_coordinates) + " coordinates; check its extents");
    }
    std::vector<Place> next;
    next.reserve(all.size() * static_cast<std::size_t>(mode.extent));
    for (const Place& place : all) {
      for (std::int64_t digit = 0; digit < mode.extent; ++digit) {
        next.push_back({place.coord + digit * mode.step, place.bit + digit * mode.stride});
      }
    }
    all = std::move(next);
  }
  const auto before = [](const Place& a, const Place& b) { return a.coord < b.coord; };
  if (!std::is_sorted(all.begin(), all.end(), before)) std::sort(all.begin(), all.end(), before);
  return all;
}

Coordinates::Coordinates(const layout::Plane& plane) {
  for (const Axis axis : layout::all_axes) axes_[static_cast<std::size_t>(axis)] = places(plane, axis);
}

std::int64_t Coordinates::count() const {
  std::int64_t n = 1;
  for (const auto& axis : axes_) n *= static_cast<std::int64_t>(axis.size());
  return n;
}

std::array<Pairs, layout::axis_count> common(const Coordinates& from, const Coordinates& to) {
  std::array<Pairs, layout::axis_count> all;
  for (const Axis axis : layout::all_axes) {
    Pairs& pairs = all[static_cast<std::size_t>(axis)];
    auto f = from[axis].begin();
    auto t = to[axis].begin();
    while (f != from[axis].end() && t != to[axis].end()) {
      if (f->coord < t->coord) {
        ++f;
      } else if (t->coord < f->coord) {
        ++t;
      } else {
        pairs.from.push_back((f++)->bit);
        pairs.to.push_back((t++)->bit);
      }
    }
    if (pairs.from.empty()) break;  // nothing in common; the other axes are irrelevant
  }
  return all;
}

std::int64_t count(const std::array<Pairs, layout::axis_count>& pairs) {
  std::int64_t n = 1;
  for (const Pairs& axis : pairs) n *= static_cast<std::int64_t>(axis.from.size());
  return n;
}

}  // namespace kvcts::kernels::relayout
