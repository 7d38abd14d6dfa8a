// The plainest possible reference of the layout algebra, for tests: every digit of every mode, one element at a time.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts::layout::testing {

struct Point {
  Coord coord;
  std::int64_t bit;  ///< nibble order applied
};

/// All elements of a plane, unordered. One entry per digit combination.
inline std::vector<Point> points(const Plane& plane) {
  std::vector<Point> all{{plane.origin, plane.offset}};
  for (const Mode& m : plane.modes) {
    std::vector<Point> next;
    for (const Point& p : all) {
      for (std::int64_t d = 0; d < m.extent; ++d) {
        Point q = p;
        q.coord[m.axis] += d * m.step;
        q.bit += d * m.stride;
        next.push_back(q);
      }
    }
    all = std::move(next);
  }
  if (plane.high_nibble_first && bits(plane.dtype) == 4) {
    for (Point& p : all) p.bit = p.bit % 8 == 0 ? p.bit + 4 : p.bit % 8 == 4 || p.bit % 8 == -4 ? p.bit - 4 : p.bit;
  }
  return all;
}

inline bool inside(const Coord& c, const Box& box) {
  for (Axis a : all_axes) {
    if (c[a] < box.lo[a] || c[a] >= box.hi[a]) return false;
  }
  return true;
}

/// bit -> coordinates that own it.
inline std::map<std::int64_t, std::set<Coord>> owners(const Plane& plane) {
  std::map<std::int64_t, std::set<Coord>> out;
  for (const Point& p : points(plane)) {
    for (int i = 0; i < bits(plane.dtype); ++i) out[p.bit + i].insert(p.coord);
  }
  return out;
}

}  // namespace kvcts::layout::testing
