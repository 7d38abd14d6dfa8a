#include "scene/truth/walk.hpp"

#include <functional>

#include "layout/checked.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::Mode;
using layout::Plane;
using layout::checked::floor_to;

namespace {

std::vector<Mode> modes_of(const Plane& plane, Axis axis) {
  std::vector<Mode> out;
  for (const Mode& mode : plane.modes) {
    if (mode.axis == axis) out.push_back(mode);
  }
  return out;
}

}  // namespace

bool in_parts(layout::Component component, const std::string& parts) {
  if (parts == "data") return component == layout::Component::data;
  if (parts == "scales") return component != layout::Component::data;
  return true;
}

ViewWalk::ViewWalk(const View& view, const AddressSpace& space)
    : space_(space), view_(view), cache_(cache_of(view)), memory_(memory_of(view)), starts_(space.addresses(view, cache_)) {
  for (const Plane& plane : cache_.planes) {
    std::int64_t last = plane.origin[Axis::slot];
    for (const Mode& mode : modes_of(plane, Axis::slot)) last += (mode.extent - 1) * mode.step;
    block_size_ = std::max(block_size_, last + 1);
  }
}

bool ViewWalk::blocked() const {
  return std::any_of(cache_.planes.begin(), cache_.planes.end(),
                     [](const Plane& p) { return has_axis(p, Axis::block) || has_axis(p, Axis::slot); });
}

bool ViewWalk::holds(Axis axis, std::int64_t coordinate, const std::string& parts) const {
  for (const Plane& plane : cache_.planes) {
    if (!in_parts(plane.component, parts)) continue;
    if (axis == Axis::block) {
      if (!has_axis(plane, Axis::block) && !has_axis(plane, Axis::slot)) continue;
      if (!block_stops(plane, {coordinate}).empty()) return true;
      continue;
    }
    if (!stops(plane, axis, std::vector<std::int64_t>{coordinate}).empty()) return true;
  }
  return false;
}

// A value in bits, cut to the width of the view's arithmetic. Anything below its unit (the other nibble) is not part of the
// product.
std::int64_t ViewWalk::cut(const Plane& plane, std::int64_t bits) const {
  const Arithmetic& how = view_.arithmetic;
  if (how.bits >= 64) return bits;
  const std::int64_t unit = how.unit == "elements" ? layout::bits(plane.dtype) : 8;
  const std::uint64_t span = std::uint64_t{1} << how.bits;
  const std::int64_t whole = floor_to(bits, unit) / unit;
  std::uint64_t kept = static_cast<std::uint64_t>(whole) % span;
  if (how.is_signed && kept >= span / 2) kept -= span;
  return static_cast<std::int64_t>(kept) * unit + (bits - whole * unit);
}

std::int64_t ViewWalk::address(const Plane& plane, std::int64_t sum) const {
  std::int64_t bits = plane.offset + sum;
  if (view_.arithmetic.of == "sum") bits = cut(plane, bits);
  std::int64_t start = starts_[static_cast<std::size_t>(plane.allocation)].offset + view_.offset;
  if (plane.component == layout::Component::scale) start += view_.scale_offset;
  bits += start * 8;
  if (layout::bits(plane.dtype) != 4 || !plane.high_nibble_first) return bits;
  return bits == floor_to(bits, 8) ? bits + 4 : bits - 4;
}

std::int64_t ViewWalk::aligned_shift(const Plane& plane, std::int64_t address) const {
  if (view_.align <= 1) return 0;
  const BufferAddress& start = starts_[static_cast<std::size_t>(plane.allocation)];
  const std::int64_t absolute = space_.buffers()[static_cast<std::size_t>(start.buffer)].base * 8 + address;
  return floor_to(absolute, view_.align * 8) - absolute;
}

std::vector<AxisStop> ViewWalk::stops(const Plane& plane, Axis axis, const Picks& picks) const {
  std::vector<AxisStop> out{{plane.origin[axis], 0}};
  for (const Mode& mode : modes_of(plane, axis)) {
    std::vector<AxisStop> next;
    for (const AxisStop& outer : out) {
      for (std::int64_t digit = 0, coordinate = outer.coordinate, bits = 0; digit < mode.extent; ++digit) {
        next.push_back({coordinate, outer.bits + (view_.arithmetic.of == "product" ? cut(plane, bits) : bits)});
        coordinate += mode.step;
        bits += mode.stride;
      }
    }
    out = std::move(next);
  }
  if (picks) {
    std::erase_if(out,
                  [&](const AxisStop& s) { return std::find(picks->begin(), picks->end(), s.coordinate) == picks->end(); });
  }
  return out;
}

// Pools have millions of blocks: enter a digit only if one of the requested ids can still follow.
std::map<std::int64_t, std::vector<std::int64_t>> ViewWalk::block_stops(const Plane& plane,
                                                                        const std::vector<std::int64_t>& ids) const {
  std::vector<Mode> modes = modes_of(plane, Axis::block);
  std::stable_sort(modes.begin(), modes.end(), [](const Mode& a, const Mode& b) { return a.step > b.step; });
  std::vector<std::int64_t> reach(modes.size() + 1, 0);  // of the modes from here on
  for (std::size_t m = modes.size(); m-- > 0;) reach[m] = reach[m + 1] + (modes[m].extent - 1) * modes[m].step;
  std::map<std::int64_t, std::vector<std::int64_t>> out;
  const std::function<void(std::size_t, std::int64_t, std::int64_t)> descend = [&](std::size_t m, std::int64_t block,
                                                                                   std::int64_t bits) {
    auto id = std::lower_bound(ids.begin(), ids.end(), block);
    if (id == ids.end() || *id > block + reach[m]) return;
    if (m == modes.size()) {
      out[block].push_back(bits);
      return;
    }
    const Mode& mode = modes[m];
    std::int64_t digit = 0;
    while (id != ids.end() && digit < mode.extent) {
      // The first digit whose reach includes this id; from there until the next id is nearer than the digit.
      const std::int64_t from = *id - reach[m + 1] - block;
      if (from > digit * mode.step) digit = (from + mode.step - 1) / mode.step;
      if (digit >= mode.extent) break;
      const std::int64_t here = block + digit * mode.step;
      const std::int64_t far = digit * mode.stride;
      descend(m + 1, here, bits + (view_.arithmetic.of == "product" ? cut(plane, far) : far));
      ++digit;
      id = std::lower_bound(ids.begin(), ids.end(), here + mode.step);
    }
  };
  descend(0, plane.origin[Axis::block], 0);
  return out;
}

}  // namespace kvcts::scenario
