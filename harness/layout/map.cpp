// The map and its inverse.
#include <algorithm>
#include <array>

#include "layout/checked.hpp"
#include "layout/digits.hpp"
#include "layout/layout.hpp"

namespace kvcts::layout {
namespace {

using checked::add;
using checked::mul;
using checked::sub;

/// With the high nibble first, an even 4-bit position lies in bits 4..7 of its byte: bit 2 of the position flips.
std::int64_t physical(const Plane& plane, int width, std::int64_t bit) {
  return plane.high_nibble_first && width == 4 ? bit ^ 4 : bit;
}

/// One mode with its stride made positive: digit' = extent - 1 - digit if the stride was negative.
struct Lattice {
  int mode;
  bool flipped;
  std::int64_t stride, extent;
  std::int64_t reach_below;  ///< how far the later (smaller) modes reach together
};

struct Search {
  const Plane& plane;
  std::int64_t at;  ///< the requested bit
  int width;
  std::array<Lattice, max_modes> modes;
  int count{0};
  Coord coord;
  std::vector<Coord>* found;
  std::int64_t budget{std::int64_t{1} << 22};  ///< digits to try; nested strides need one or two per mode

  /// Every digit of mode i that can still leave 0 <= rest - (smaller modes) < width.
  void descend(int i, std::int64_t rest) {
    if (i == count) {
      if (rest >= 0 && rest < width) found->push_back(coord);
      return;
    }
    const Lattice& l = modes[static_cast<std::size_t>(i)];
    std::int64_t low = 0;
    std::int64_t high = l.extent - 1;
    if (l.stride > 0) {
      if (rest < 0) return;
      high = std::min(high, rest / l.stride);
      const std::int64_t must = rest - (width - 1) - l.reach_below;  // cannot overflow: rest >= 0, reach was checked
      if (must > 0) low = checked::ceil_div(must, l.stride);
    }
    const Mode& m = plane.modes[static_cast<std::size_t>(l.mode)];
    const std::int64_t base = coord[m.axis];
    for (std::int64_t digit = low; digit <= high; ++digit) {
      if (--budget < 0) {
        throw Error("inverse: bit " + std::to_string(at) +
                    " of the plane belongs to too many elements, or its strides overlap too much; " +
                    "check the plane with overlaps()");
      }
      coord[m.axis] = base + (l.flipped ? l.extent - 1 - digit : digit) * m.step;
      descend(i + 1, rest - digit * l.stride);
    }
    coord[m.axis] = base;
  }
};

std::vector<Coord> coordinates_at(const Plane& plane, std::int64_t bit) {
  if (plane.modes.size() > max_modes) AxisDigits(plane, Axis::layer);  // throws
  (void)domain(plane);                                                 // throws when a coordinate would overflow
  const int width = bits(plane.dtype);
  std::vector<Coord> found;
  Search search{plane, bit, width, {}, 0, plane.origin, &found};
  std::int64_t lowest = plane.offset;
  for (std::size_t i = 0; i < plane.modes.size(); ++i) {
    const Mode& m = plane.modes[i];
    if (m.extent == 1) continue;
    const bool flipped = m.stride < 0;
    if (flipped) lowest = add(lowest, mul(m.extent - 1, m.stride));
    search.modes[static_cast<std::size_t>(search.count++)] = {static_cast<int>(i), flipped,
                                                              flipped ? sub(0, m.stride) : m.stride, m.extent, 0};
  }
  std::sort(search.modes.begin(), search.modes.begin() + search.count,
            [](const Lattice& a, const Lattice& b) { return a.stride > b.stride; });
  std::int64_t reach = 0;
  for (int i = search.count - 1; i >= 0; --i) {
    Lattice& l = search.modes[static_cast<std::size_t>(i)];
    l.reach_below = reach;
    reach = add(reach, mul(l.extent - 1, l.stride));
  }
  const std::int64_t rest = sub(physical(plane, width, bit), lowest);
  if (rest < 0 || rest - (width - 1) > reach) return found;
  search.descend(0, rest);
  return found;
}

}  // namespace

Box domain(const Plane& plane) {
  Box box{plane.origin, plane.origin};
  for (const Mode& m : plane.modes) {
    box.hi[m.axis] = add(box.hi[m.axis], mul(sub(m.extent, 1), m.step));
  }
  for (Axis axis : all_axes) box.hi[axis] = add(box.hi[axis], 1);
  return box;
}

bool has_axis(const Plane& plane, Axis axis) {
  return std::any_of(plane.modes.begin(), plane.modes.end(), [&](const Mode& m) { return m.axis == axis; });
}

std::int64_t element_count(const Plane& plane) {
  std::int64_t count = 1;
  for (const Mode& m : plane.modes) count = mul(count, m.extent);
  return count;
}

std::optional<Location> locate(const Plane& plane, const Coord& coord) {
  Coord rest;
  for (Axis axis : all_axes) {
    rest[axis] = sub(coord[axis], plane.origin[axis]);
    if (rest[axis] < 0) return std::nullopt;
  }
  std::int64_t position = plane.offset;
  const auto take = [&](const Mode& m) {
    if (m.step < 1)
      throw Error("a mode of axis " + std::string(name(m.axis)) + " has step " + std::to_string(m.step) +
                  ": expected 1 or more");
    std::int64_t& left = rest[m.axis];
    const std::int64_t digit = m.step == 1 ? left : left / m.step;
    if (digit >= m.extent) return false;
    left -= digit * m.step;
    if (digit != 0) position = add(position, mul(digit, m.stride));
    return true;
  };
  // Modes of an axis nearly always have descending steps; otherwise, use AxisDigits.
  std::array<std::int64_t, axis_count> last;
  last.fill(INT64_MAX);
  unsigned unordered = 0;
  for (const Mode& m : plane.modes) {
    const auto a = static_cast<std::size_t>(m.axis);
    if (m.extent == 1) continue;
    if (m.step > last[a]) unordered |= 1U << a;
    last[a] = m.step;
  }
  for (const Mode& m : plane.modes) {
    if (m.extent == 1 || (unordered >> static_cast<unsigned>(m.axis) & 1U) != 0) continue;
    if (!take(m)) return std::nullopt;
  }
  if (unordered != 0) {
    for (Axis axis : all_axes) {
      if ((unordered >> static_cast<unsigned>(axis) & 1U) == 0) continue;
      const AxisDigits digits(plane, axis);
      for (int i = 0; i < digits.count; ++i) {
        if (!take(plane.modes[digits.mode[static_cast<std::size_t>(i)]])) return std::nullopt;
      }
    }
  }
  if (rest != Coord{}) return std::nullopt;
  const int width = bits(plane.dtype);
  return Location{plane.allocation, physical(plane, width, position), width};
}

std::optional<Location> locate(const Cache& cache, Component component, const Coord& coord) {
  for (const Plane& plane : cache.planes) {
    if (plane.component != component) continue;
    if (auto found = locate(plane, coord)) return found;
  }
  return std::nullopt;
}

std::vector<Element> inverse(const Plane& plane, std::int64_t bit) {
  std::vector<Element> elements;
  for (const Coord& coord : coordinates_at(plane, bit)) elements.push_back({0, coord});
  return elements;
}

std::vector<Element> inverse(const Cache& cache, int allocation, std::int64_t bit) {
  std::vector<Element> elements;
  for (std::size_t i = 0; i < cache.planes.size(); ++i) {
    if (cache.planes[i].allocation != allocation) continue;
    for (const Coord& coord : coordinates_at(cache.planes[i], bit)) elements.push_back({static_cast<int>(i), coord});
  }
  return elements;
}

}  // namespace kvcts::layout
