// How many passes decide: until the smallest unit that code under test can move collides with p < 2^-64.
#pragma once

#include <algorithm>

#include "kernels/tag.hpp"
#include "layout/layout.hpp"

namespace kvcts {

/// Passes that the planes of a cache need. The smallest unit: elements that are adjacent along channels.
inline int deciding_passes(const layout::Cache& cache) {
  int passes = 1;
  for (const auto& plane : cache.planes) {
    if (plane.component == layout::Component::global_scale) continue;
    std::int64_t together = 1;
    for (const auto& m : layout::normalised(plane).modes) {
      if (m.axis == layout::Axis::channel && m.stride == layout::bits(plane.dtype)) together = m.extent;
    }
    passes = std::max(passes, kernels::deciding_passes(plane.dtype, together, plane.component));
  }
  return passes;
}

}  // namespace kvcts
