// Bounds, sanity, holes and overlaps.
#include <algorithm>

#include "layout/checked.hpp"
#include "layout/digits.hpp"
#include "layout/layout.hpp"
#include "layout/overlap.hpp"

namespace kvcts::layout {
namespace {

using checked::add;
using checked::mul;
using checked::sub;

/// [lowest, highest + 1) bits that the elements of a plane reach.
ByteRange bit_bounds(const Plane& plane) {
  std::int64_t low = plane.offset;
  std::int64_t high = plane.offset;
  for (const Mode& m : plane.modes) {
    const std::int64_t far = mul(sub(m.extent, 1), m.stride);
    (far < 0 ? low : high) = add(far < 0 ? low : high, far);
  }
  return {low, add(high, bits(plane.dtype))};
}

std::string to_string(const Mode& m) {
  return std::string("mode ") + letter(m.axis) + '=' + std::to_string(m.extent) + " (stride " + std::to_string(m.stride) +
         " bits, step " + std::to_string(m.step) + ")";
}

void validate(const Plane& plane, const std::string& where, const Cache& cache) {
  if (plane.allocation < 0 || static_cast<std::size_t>(plane.allocation) >= cache.allocations.size()) {
    throw Error(where + " lies in allocation " + std::to_string(plane.allocation) + ", but the cache has " +
                std::to_string(cache.allocations.size()) + "; add the allocation or correct the index");
  }
  const int unit = std::min(bits(plane.dtype), 8);
  if (plane.offset % unit != 0) {
    throw Error(where + " starts at bit " + std::to_string(plane.offset) + ": expected a multiple of " +
                std::to_string(unit));
  }
  for (const Mode& m : plane.modes) {
    if (m.extent < 1) throw Error(where + ", " + to_string(m) + ": expected an extent of 1 or more");
    if (m.step < 1) throw Error(where + ", " + to_string(m) + ": expected a step of 1 or more");
    if (m.stride % unit != 0) {
      throw Error(where + ", " + to_string(m) + ": expected a stride in multiples of " + std::to_string(unit) + " bits");
    }
  }
  for (Axis axis : all_axes) {
    const AxisDigits digits(plane, axis);
    if (!digits.unique(plane)) {
      throw Error(where + ": the modes of axis " + std::string(name(axis)) +
                  " give one coordinate two places; expected each step to be larger than what the smaller ones reach");
    }
  }
  (void)domain(plane);
  (void)element_count(plane);
  const ByteRange range = bounds(plane);
  const Allocation& allocation = cache.allocations[static_cast<std::size_t>(plane.allocation)];
  if (range.begin < 0 || range.end > allocation.bytes) {
    throw Error(where + " reaches bytes [" + std::to_string(range.begin) + ", " + std::to_string(range.end) +
                ") of allocation '" + allocation.name + "', which has " + std::to_string(allocation.bytes) +
                " bytes; enlarge the allocation or correct offset and strides");
  }
}

void validate(const TensorView& tensor, const Cache& cache) {
  const std::string where = "tensor '" + tensor.name + "'";
  if (tensor.allocation < 0 || static_cast<std::size_t>(tensor.allocation) >= cache.allocations.size()) {
    throw Error(where + " lies in allocation " + std::to_string(tensor.allocation) + ", but the cache has " +
                std::to_string(cache.allocations.size()) + "; add the allocation or correct the index");
  }
  std::int64_t low = tensor.offset;
  std::int64_t high = tensor.offset;
  for (const Dim& dim : tensor.dims) {
    if (dim.extent < 1) {
      throw Error(where + " has a dimension of extent " + std::to_string(dim.extent) + ": expected 1 or more");
    }
    const std::int64_t far = mul(dim.extent - 1, dim.stride);
    (far < 0 ? low : high) = add(far < 0 ? low : high, far);
  }
  const std::int64_t end = add(high, std::max(bits(tensor.dtype) / 8, 1));
  const Allocation& allocation = cache.allocations[static_cast<std::size_t>(tensor.allocation)];
  if (low < 0 || end > allocation.bytes) {
    throw Error(where + " reaches bytes [" + std::to_string(low) + ", " + std::to_string(end) + ") of allocation '" +
                allocation.name + "', which has " + std::to_string(allocation.bytes) +
                " bytes; correct its shape, strides or offset");
  }
}

}  // namespace

ByteRange bounds(const Plane& plane) {
  const ByteRange range = bit_bounds(plane);
  return {checked::floor_div(range.begin, 8), checked::ceil_div(range.end, 8)};
}

void validate(const Cache& cache) {
  for (const Allocation& a : cache.allocations) {
    if (a.bytes < 0)
      throw Error("allocation '" + a.name + "' has " + std::to_string(a.bytes) + " bytes: expected 0 or more");
  }
  for (std::size_t i = 0; i < cache.planes.size(); ++i) {
    validate(cache.planes[i], "plane " + std::to_string(i) + " (" + std::string(name(cache.planes[i].component)) + ")",
             cache);
  }
  for (const TensorView& tensor : cache.tensors) validate(tensor, cache);
}

std::vector<ByteRange> holes(const Cache& cache, int allocation) {
  if (allocation < 0 || static_cast<std::size_t>(allocation) >= cache.allocations.size()) {
    throw Error("holes: allocation " + std::to_string(allocation) + " of " + std::to_string(cache.allocations.size()) +
                " does not exist");
  }
  std::vector<ByteRange> touched;
  for (const Plane& plane : cache.planes) {
    if (plane.allocation != allocation) continue;
    const auto before = static_cast<std::ptrdiff_t>(touched.size());
    for (const Run& run : runs(plane, domain(plane))) {
      touched.push_back({checked::floor_div(run.bit, 8), checked::ceil_div(run.bit + run.bits, 8)});
    }
    std::inplace_merge(touched.begin(), touched.begin() + before, touched.end(),
                       [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  }
  std::vector<ByteRange> free;
  std::int64_t at = 0;
  const std::int64_t bytes = cache.allocations[static_cast<std::size_t>(allocation)].bytes;
  for (const ByteRange& range : touched) {
    if (range.begin > at) free.push_back({at, std::min(range.begin, bytes)});
    at = std::max(at, range.end);
  }
  if (at < bytes) free.push_back({at, bytes});
  return free;
}

std::vector<Overlap> overlaps(const Cache& cache, int allocation) {
  std::vector<Overlap> found;
  for (std::size_t i = 0; i < cache.planes.size(); ++i) {
    const Plane& a = cache.planes[i];
    if (a.allocation != allocation) continue;
    if (const auto bit = first_doubled_bit(a)) found.push_back({static_cast<int>(i), static_cast<int>(i), *bit});
    for (std::size_t j = i + 1; j < cache.planes.size(); ++j) {
      if (cache.planes[j].allocation != allocation) continue;
      if (const auto bit = first_shared_bit(a, cache.planes[j])) {
        found.push_back({static_cast<int>(i), static_cast<int>(j), *bit});
      }
    }
  }
  return found;
}

}  // namespace kvcts::layout
