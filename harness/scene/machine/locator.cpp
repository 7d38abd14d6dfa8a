#include "scene/machine/locator.hpp"

#include <algorithm>

#include "layout/checked.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::checked::floor_div;

namespace {

std::int64_t cut(std::int64_t value, const Arithmetic& how) {
  if (how.bits >= 64) return value;
  const std::uint64_t mask = (std::uint64_t{1} << how.bits) - 1;
  std::uint64_t kept = static_cast<std::uint64_t>(value) & mask;
  if (how.is_signed && (kept >> (how.bits - 1)) != 0) kept |= ~mask;
  return static_cast<std::int64_t>(kept);
}

}  // namespace

PlaneLocator::PlaneLocator(const layout::Plane& plane, BufferAddress start, const View& view)
    : plane_(plane), domain_(layout::domain(plane)), start_(start), arithmetic_(view.arithmetic) {
  start_.offset += view.offset + (plane.component == layout::Component::scale ? view.scale_offset : 0);
  for (const layout::Mode& mode : plane.modes) modes_[static_cast<std::size_t>(mode.axis)].push_back(mode);
  for (auto& modes : modes_) {
    std::stable_sort(modes.begin(), modes.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  }
  constexpr std::int64_t few = 1024;
  for (const Axis axis : layout::all_axes) {
    const std::int64_t lo = domain_.lo[axis], hi = domain_.hi[axis];
    for (std::int64_t i = lo; i < hi && hi - lo <= few; ++i)
      known_[static_cast<std::size_t>(axis)].push_back(reckon(axis, i));
  }
  const auto& channels = modes_[static_cast<std::size_t>(Axis::channel)];
  const int width = layout::bits(plane.dtype);
  contiguous_ = channels.size() == 1 && channels[0].step == 1 && channels[0].stride == width && arithmetic_.bits >= 64 &&
                !(width == 4 && plane.high_nibble_first);
}

std::int64_t PlaneLocator::narrow(std::int64_t bits) const {
  if (arithmetic_.bits >= 64) return bits;
  const std::int64_t unit = arithmetic_.unit == "elements" ? layout::bits(plane_.dtype) : 8;
  const std::int64_t whole = floor_div(bits, unit);
  return cut(whole, arithmetic_) * unit + (bits - whole * unit);
}

std::optional<std::int64_t> PlaneLocator::part(Axis axis, std::int64_t coordinate) const {
  const auto& known = known_[static_cast<std::size_t>(axis)];
  const auto index = static_cast<std::uint64_t>(coordinate - domain_.lo[axis]);
  return index < known.size() ? known[index] : reckon(axis, coordinate);
}

// Blocks beyond the pool also have an address: an id out of range is data under test.
std::optional<std::int64_t> PlaneLocator::reckon(Axis axis, std::int64_t coordinate) const {
  const auto& modes = modes_[static_cast<std::size_t>(axis)];
  std::int64_t rest = coordinate - plane_.origin[axis], sum = 0;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const layout::Mode& mode = modes[i];
    std::int64_t digit = floor_div(rest, mode.step);
    if (axis != Axis::block || i > 0) digit = std::clamp<std::int64_t>(digit, 0, mode.extent - 1);
    rest -= digit * mode.step;
    sum += arithmetic_.of == "product" ? narrow(digit * mode.stride) : digit * mode.stride;
  }
  return rest == 0 ? std::optional(sum) : std::nullopt;
}

BitRange PlaneLocator::at(std::int64_t sum) const {
  std::int64_t bit = plane_.offset + sum;
  if (arithmetic_.of == "sum") bit = narrow(bit);
  bit += start_.offset * 8;
  const int width = layout::bits(plane_.dtype);
  if (width == 4 && plane_.high_nibble_first) bit ^= 4;
  return {start_.buffer, bit, width};
}

ViewLocator::ViewLocator(const View& view, const AddressSpace& space) : memory_(memory_of(view)), align_(view.align) {
  const layout::Cache cache = cache_of(view);
  const std::vector<BufferAddress> starts = space.addresses(view, cache);
  for (const layout::Plane& plane : cache.planes) {
    planes_.emplace_back(plane, starts.at(static_cast<std::size_t>(plane.allocation)), view);
    const layout::Box& box = planes_.back().domain();
    block_size_ = std::max(block_size_, box.hi[Axis::slot]);
    blocks_ = std::max(blocks_, box.hi[Axis::block]);
    double elements = 1;
    for (const Axis axis : layout::all_axes) {
      if (axis != Axis::block) elements *= static_cast<double>(box.hi[axis] - box.lo[axis]);
    }
    elements_ += elements;
  }
}

const ViewLocator& Locators::of(const View& view) {
  const std::string key = view.of + "\n" + view.cache + "\n" + std::to_string(view.offset) + " " +
                          std::to_string(view.scale_offset) + " " + std::to_string(view.align) + " " +
                          std::to_string(view.arithmetic.bits) + (view.arithmetic.is_signed ? "s" : "u") +
                          view.arithmetic.unit + view.arithmetic.of;
  auto& slot = known_[key];
  if (!slot) slot = std::make_unique<ViewLocator>(view, space_);
  return *slot;
}

}  // namespace kvcts::scenario
