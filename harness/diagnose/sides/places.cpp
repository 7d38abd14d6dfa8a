#include "diagnose/sides/places.hpp"

namespace kvcts::diagnose {

using layout::Axis;

Places::Places(const layout::Plane& plane) : plane_(plane), width_(layout::bits(plane.dtype)) {
  for (const auto& mode : plane_.modes) blocked_ = blocked_ || mode.axis == Axis::block || mode.axis == Axis::slot;
  const auto box = layout::domain(plane_);
  const auto channels = box.hi[Axis::channel] - box.lo[Axis::channel];
  runs_.assign(static_cast<std::size_t>(channels), 1);
  flip_ = plane_.high_nibble_first && width_ == 4 ? 4 : 0;
  const auto origin = layout::locate(plane_, plane_.origin);
  if (!origin) return;
  zero_ = origin->bit ^ flip_;
  for (const Axis axis : layout::all_axes) {
    auto& table = tables_[static_cast<std::size_t>(axis)];
    table.first = box.lo[axis];
    layout::Coord at = plane_.origin;
    for (at[axis] = box.lo[axis]; at[axis] < box.hi[axis]; ++at[axis]) {
      const auto where = layout::locate(plane_, at);
      table.bit.push_back(where ? std::optional((where->bit ^ flip_) - zero_) : std::nullopt);
    }
  }
  if (flip_ != 0) return;
  const auto& bits = tables_[static_cast<std::size_t>(Axis::channel)].bit;
  for (auto c = bits.size(); c-- > 1;) {
    if (bits[c - 1] && bits[c] && *bits[c] - *bits[c - 1] == width_) runs_[c - 1] = runs_[c] + 1;
  }
}

std::optional<std::int64_t> Places::bit(const layout::Coord& at) const {
  std::int64_t sum = zero_;
  for (const Axis axis : layout::all_axes) {
    if (!blocked_ && (axis == Axis::block || axis == Axis::slot)) continue;
    const auto& table = tables_[static_cast<std::size_t>(axis)];
    const auto i = at[axis] - table.first;
    if (i < 0 || i >= static_cast<std::int64_t>(table.bit.size()) || !table.bit[static_cast<std::size_t>(i)])
      return std::nullopt;
    sum += *table.bit[static_cast<std::size_t>(i)];
  }
  return sum ^ flip_;
}

std::int64_t Places::run(std::int64_t channel) const {
  return runs_.at(static_cast<std::size_t>(channel - plane_.origin[Axis::channel]));
}

CachePlaces::CachePlaces(const std::vector<const layout::Cache*>& caches) {
  std::size_t first_file = 0;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    for (const auto& plane : caches[i]->planes)
      all_.push_back({Places(plane), i, first_file + static_cast<std::size_t>(plane.allocation)});
    first_file += caches[i]->allocations.size();
  }
}

std::optional<CachePlaces::Place> CachePlaces::find(layout::Component component, const layout::Coord& at) const {
  for (const auto& one : all_) {
    if (one.places.plane().component != component) continue;
    if (const auto bit = one.places.bit(at)) return Place{&one.places, one.cache, one.file, *bit};
  }
  return std::nullopt;
}

}  // namespace kvcts::diagnose
