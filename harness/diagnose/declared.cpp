#include "diagnose/declared.hpp"

#include <cstdlib>
#include <set>
#include <string>

namespace kvcts::scenario {

namespace {

using layout::Axis;
using Numbers = std::set<std::int64_t>;

std::int64_t extent_of(const layout::Plane& plane, Axis axis) {
  const layout::Box box = layout::domain(plane);
  return box.hi[axis] - box.lo[axis];
}

/// Bits of a code, or of a byte where codes are counted as bytes, times any of a plane's extents.
void add_products(const layout::Plane& plane, Numbers& strides) {
  Numbers products{layout::bits(plane.dtype), 8};
  for (const layout::Mode& mode : plane.modes) {
    for (const std::int64_t product : Numbers(products)) products.insert(product * mode.extent);
  }
  strides.merge(products);
}

struct Declared {
  std::set<std::string> caches;
  Numbers extents, strides;  ///< strides in bits

  void add(const View& view) {
    if (view.cache.empty() || !caches.insert(view.cache).second) return;
    for (const layout::Plane& plane : cache_of(view).planes) {
      for (const Axis axis : layout::all_axes) extents.insert(extent_of(plane, axis));
      for (const layout::Mode& mode : plane.modes) strides.insert(std::abs(mode.stride));
      add_products(plane, strides);
    }
  }
};

Declared declared_in(const Scenario& scenario) {
  Declared out;
  for (const auto& [name, memory] : scenario.memories) out.add(memory.view);
  for (const Step& step : scenario.steps) {
    for (const auto* views : {&step.intended.from, &step.intended.to})
      for (const View& view : *views) out.add(view);
  }
  for (const auto& [name, request] : scenario.requests) out.extents.insert(request.tokens);
  return out;
}

void add_unknown(const View& view, const Declared& declared, Numbers& out) {
  if (view.cache.empty() || declared.caches.contains(view.cache)) return;
  for (const layout::Plane& plane : cache_of(view).planes) {
    Numbers extents;
    for (const Axis axis : layout::all_axes) {
      // Larger blocks are fewer.
      const std::int64_t extent = extent_of(plane, axis);
      if (axis != Axis::block && !declared.extents.contains(extent)) extents.insert(extent);
    }
    Numbers strides;
    for (const layout::Mode& mode : plane.modes) {
      const std::int64_t stride = std::abs(mode.stride);
      if (mode.extent > 1 && stride != 0 && !declared.strides.contains(stride)) strides.insert(stride / 8);
    }
    // Strides follow from extents.
    out.merge(extents.empty() ? strides : extents);
  }
}

}  // namespace

std::vector<std::int64_t> undeclared_numbers(const Scenario& scenario, const CandidateSteps& bodies) {
  const Declared declared = declared_in(scenario);
  Numbers out;
  for (const auto& body : bodies) {
    for (const Action& action : body) {
      for (const auto* views : {&action.from, &action.to})
        for (const View& view : *views) add_unknown(view, declared, out);
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace kvcts::scenario
