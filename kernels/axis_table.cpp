#include "kernels/axis_table.hpp"

#include <algorithm>
#include <string>

namespace kvcts::kernels {
namespace {

/// sum += count * unit, or an error: a plane that needs more than 63 bits is a mistake, not a big plane.
void add_product(std::int64_t& sum, std::int64_t count, std::int64_t unit, const char* what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(count, unit, &product) || __builtin_add_overflow(sum, product, &sum)) {
    throw layout::Error(std::string("the ") + what + " of a plane overflows 64 bits; check its extents, strides and origin");
  }
}

/// A table of 4 GiB: no real axis comes near, but a mistyped extent does.
constexpr std::int64_t most_entries = std::int64_t{1} << 28;

void require_entries(layout::Axis axis, std::int64_t so_far, std::int64_t extent) {
  if (so_far <= most_entries / extent) return;
  throw layout::Error(std::string("axis ") + layout::letter(axis) + " of a plane has more than " +
                      std::to_string(most_entries) + " coordinates; check its extents");
}

}  // namespace

Extremes extremes(const layout::Plane& plane, layout::Axis axis) {
  Extremes out{plane.origin[axis], plane.origin[axis]};
  for (const layout::Mode& mode : plane.modes) {
    if (mode.axis == axis) add_product(out.most, mode.extent - 1, mode.step, "coordinates");
  }
  return out;
}

void check_plane(const layout::Plane& plane, int width, std::uint64_t bytes) {
  std::int64_t low = plane.offset, high = plane.offset;
  for (const layout::Mode& mode : plane.modes) {
    if (mode.extent < 1 || mode.step < 1) {
      throw layout::Error(std::string("a mode needs extent >= 1 and step >= 1, found extent ") +
                          std::to_string(mode.extent) + ", step " + std::to_string(mode.step) + " on axis " +
                          layout::letter(mode.axis));
    }
    add_product(mode.stride < 0 ? low : high, mode.extent - 1, mode.stride, "bits");
    if (plane.high_nibble_first && width == 4 && mode.stride % 4 != 0) {
      throw layout::Error("a high-nibble-first plane must lie on whole nibbles, found a stride of " +
                          std::to_string(mode.stride) + " bits");
    }
  }
  if (plane.high_nibble_first && width == 4 && plane.offset % 4 != 0) {
    throw layout::Error("a high-nibble-first plane must lie on whole nibbles, found an offset of " +
                        std::to_string(plane.offset) + " bits");
  }
  add_product(high, width, 1, "bits");
  if (low < 0 || static_cast<std::uint64_t>(high - 1) / 8 >= bytes) {
    throw layout::Error("the plane lies at bits [" + std::to_string(low) + ", " + std::to_string(high) +
                        ") of an allocation of " + std::to_string(bytes) + " bytes; check its offset, strides and extents");
  }
}

AxisTable::AxisTable(const layout::Plane& plane, layout::Axis axis) : entries_{{plane.origin[axis], 0}} {
  for (const layout::Mode& mode : plane.modes) {
    if (mode.axis != axis) continue;
    has_modes_ = true;
    if (mode.extent > 1) pitch_ = std::min(pitch_, mode.stride < 0 ? -mode.stride : mode.stride);
    require_entries(axis, static_cast<std::int64_t>(entries_.size()), mode.extent);
    std::vector<AxisEntry> next;
    next.reserve(entries_.size() * static_cast<std::size_t>(mode.extent));
    for (const AxisEntry& entry : entries_) {
      for (std::int64_t digit = 0; digit < mode.extent; ++digit) {
        next.push_back({entry.coord + digit * mode.step, entry.bit + digit * mode.stride});
      }
    }
    entries_ = std::move(next);
  }
  const auto before = [](const AxisEntry& a, const AxisEntry& b) {
    return a.coord != b.coord ? a.coord < b.coord : a.bit < b.bit;
  };
  if (!std::is_sorted(entries_.begin(), entries_.end(), before)) std::sort(entries_.begin(), entries_.end(), before);
  gapless_ = true;
  for (std::size_t k = 1; k < entries_.size(); ++k) gapless_ = gapless_ && entries_[k].coord == entries_[k - 1].coord + 1;
  even_ = gapless_;
  for (std::size_t k = 1; k < entries_.size(); ++k) even_ = even_ && entries_[k].bit - entries_[k - 1].bit == stride();
}

BlockPlaces::BlockPlaces(const layout::Plane& plane) : first_(plane.origin[layout::Axis::block]) {
  int modes = 0;
  for (const layout::Mode& mode : plane.modes) {
    if (mode.axis != layout::Axis::block) continue;
    require_entries(mode.axis, 1, mode.extent);
    ++modes, mode_ = mode;
  }
  if (modes > 1) table_.emplace(plane, layout::Axis::block);
}

std::int64_t BlockPlaces::pitch() const {
  if (table_) return table_->entries().size() > 1 ? table_->pitch() : 0;
  if (mode_.extent == 1) return 0;
  return mode_.stride < 0 ? -mode_.stride : mode_.stride;
}

std::span<const AxisEntry> AxisTable::within(std::int64_t lo, std::int64_t hi) const {
  const std::span<const AxisEntry> all(entries_);
  if (hi <= lo || lo > all.back().coord || hi <= all.front().coord) return {};
  if (gapless_) {
    const std::int64_t first = all.front().coord;
    const auto from = static_cast<std::size_t>(std::max(lo, first) - first);
    const auto to = static_cast<std::size_t>(std::min(hi, all.back().coord + 1) - first);
    return all.subspan(from, to - from);
  }
  const auto below = [](const AxisEntry& entry, std::int64_t coord) { return entry.coord < coord; };
  const auto from = std::lower_bound(all.begin(), all.end(), lo, below);
  return {from, std::lower_bound(from, all.end(), hi, below)};
}

}  // namespace kvcts::kernels
