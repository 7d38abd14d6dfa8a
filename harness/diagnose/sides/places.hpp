// Where a plane has its elements, looked up axis by axis, because predictions query every element of a case once per
// hypothesis. Agrees with layout::locate, from which it is built.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts::diagnose {

class Places {
 public:
  /// Throws layout::Error where layout::locate would, for a coordinate on some axis.
  explicit Places(const layout::Plane& plane);

  const layout::Plane& plane() const { return plane_; }
  int width() const { return width_; }
  /// Bit in the plane's allocation; nothing where the plane has no such coordinate. A plane without blocks (global scales)
  /// has one for all.
  std::optional<std::int64_t> bit(const layout::Coord& at) const;
  /// How many channels from this one are packed consecutively; at least 1.
  std::int64_t run(std::int64_t channel) const;

 private:
  layout::Plane plane_;
  int width_;
  bool blocked_{false};
  std::int64_t zero_{0};  ///< bit of the origin
  std::int64_t flip_{0};  ///< turns a sum of distances into a bit: 4 with the high 4-bit code of a byte first
  struct Table {
    std::int64_t first{0};
    std::vector<std::optional<std::int64_t>> bit;  ///< from the origin's
  };
  std::array<Table, layout::axis_count> tables_;
  std::vector<std::int64_t> runs_;
};

/// The place of a coordinate in the first cache and plane of a list that has it, as layout::locate on each in turn.
class CachePlaces {
 public:
  explicit CachePlaces(const std::vector<const layout::Cache*>& caches);
  struct Place {
    const Places* places{nullptr};
    std::size_t cache{0}, file{0};  ///< file: index over the allocations of all caches
    std::int64_t bit{0};            ///< in the allocation
  };
  std::optional<Place> find(layout::Component component, const layout::Coord& at) const;

 private:
  struct One {
    Places places;
    std::size_t cache{0}, file{0};
  };
  std::vector<One> all_;
};

/// Walks what `target` has between box.lo and box.hi on every axis but block and slot, which stay as in `at` and `source`.
/// Calls visit(bit in the target's allocation, place in `sources`, codes packed on both sides, the target's coordinate) for
/// each run of channels that both sides have.
template <class Visit>
void each_run(const Places& target, const CachePlaces& sources, const layout::Box& box, layout::Coord at,
              layout::Coord source, const Visit& visit) {
  using layout::Axis;
  for (auto layer = box.lo[Axis::layer]; layer < box.hi[Axis::layer]; ++layer)
    for (auto kv = box.lo[Axis::kv]; kv < box.hi[Axis::kv]; ++kv)
      for (auto head = box.lo[Axis::head]; head < box.hi[Axis::head]; ++head)
        for (auto channel = box.lo[Axis::channel]; channel < box.hi[Axis::channel];) {
          at[Axis::layer] = source[Axis::layer] = layer, at[Axis::kv] = source[Axis::kv] = kv;
          at[Axis::head] = source[Axis::head] = head, at[Axis::channel] = source[Axis::channel] = channel;
          const auto to = target.bit(at);
          const auto from = to ? sources.find(target.plane().component, source) : std::nullopt;
          const std::int64_t count = from ? std::min(target.run(channel), from->places->run(channel)) : 1;
          channel += count;
          if (from) visit(*to, *from, count, at);
        }
}

}  // namespace kvcts::diagnose
