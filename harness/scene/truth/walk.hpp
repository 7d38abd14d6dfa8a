// A view from address to coordinate: for each plane, nested loops over the digits of its modes that add up the address.
// Nothing here decomposes a coordinate; unselected elements are skipped.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layout/layout.hpp"
#include "scene/address_space.hpp"

namespace kvcts::scenario {

/// One value of an axis, and its contribution to the address.
struct AxisStop {
  std::int64_t coordinate{0};
  std::int64_t bits{0};
};

/// An element of a request as a view holds it.
struct Stop {
  layout::Component component{};
  layout::Dtype dtype{};
  bool high_nibble_first{false};
  bool whole{false};  ///< in a plane without blocks and slots: token 0 of every request
  std::int64_t kv{0}, layer{0}, token{0}, head{0}, channel{0};
  int buffer{-1};
  std::int64_t bit{0};  ///< from the start of the buffer, nibble order applied
  int width{0};
  std::int64_t byte() const { return bit >= 0 ? bit / 8 : -((7 - bit) / 8); }
  int bytes() const { return (width + 7) / 8; }
};

/// The tokens of a block: slot s is token `first + s`.
struct BlockTokens {
  std::int64_t block{0}, first{0};
};

/// Selects part of a view: tokens [begin, end), and of those only the picked ones.
struct ViewPart {
  std::vector<BlockTokens> blocks;
  std::int64_t begin{0}, end{0};
  StepSelection pick;
  std::string parts{"all"};
};

class ViewWalk {
 public:
  ViewWalk(const View& view, const AddressSpace& space);

  const std::string& memory() const { return memory_; }
  const layout::Cache& cache() const { return cache_; }
  /// Slots of a block: the largest slot extent of the planes.
  std::int64_t block_size() const { return block_size_; }
  /// Whether any plane has blocks or slots.
  bool blocked() const;
  /// Values of an axis over the planes of the selected parts.
  bool holds(layout::Axis axis, std::int64_t coordinate, const std::string& parts) const;

  /// Calls f(const Stop&) for each element; planes as written, channel innermost.
  template <class F>
  void each(const ViewPart& wanted, F&& f) const;

 private:
  /// Of one plane; `ids`: its blocks, ascending.
  template <class F>
  void each_of(const layout::Plane& plane, const ViewPart& wanted, const std::vector<std::int64_t>& ids, F& f) const;
  /// Values of one axis that `keep` accepts (nullptr: all), ascending digits, outermost mode first.
  std::vector<AxisStop> stops(const layout::Plane& plane, layout::Axis axis, const Picks& picks) const;
  /// The same for blocks: only those in `ids`, by id. `ids` ascending.
  std::map<std::int64_t, std::vector<std::int64_t>> block_stops(const layout::Plane& plane,
                                                                const std::vector<std::int64_t>& ids) const;
  std::int64_t cut(const layout::Plane& plane, std::int64_t bits) const;
  std::int64_t address(const layout::Plane& plane, std::int64_t sum) const;
  std::int64_t aligned_shift(const layout::Plane& plane, std::int64_t address) const;

  const AddressSpace& space_;
  View view_;
  layout::Cache cache_;
  std::string memory_;
  std::vector<BufferAddress> starts_;  ///< of the allocations
  std::int64_t block_size_{1};
};

bool in_parts(layout::Component component, const std::string& parts);

template <class F>
void ViewWalk::each(const ViewPart& wanted, F&& f) const {
  std::vector<std::int64_t> ids;
  for (const BlockTokens& b : wanted.blocks) ids.push_back(b.block);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const layout::Plane& plane : cache_.planes)
    if (in_parts(plane.component, wanted.parts)) each_of(plane, wanted, ids, f);
}

template <class F>
void ViewWalk::each_of(const layout::Plane& plane, const ViewPart& wanted, const std::vector<std::int64_t>& ids,
                       F& f) const {
  using layout::Axis;
  Stop stop;
  stop.component = plane.component, stop.dtype = plane.dtype, stop.high_nibble_first = plane.high_nibble_first;
  stop.whole = !has_axis(plane, Axis::block) && !has_axis(plane, Axis::slot);
  stop.buffer = starts_.at(static_cast<std::size_t>(plane.allocation)).buffer;
  stop.width = layout::bits(plane.dtype);
  const auto kvs = stops(plane, Axis::kv, wanted.pick.kv), layers = stops(plane, Axis::layer, wanted.pick.layers);
  const auto heads = stops(plane, Axis::head, wanted.pick.heads), slots = stops(plane, Axis::slot, std::nullopt);
  auto channels = stops(plane, Axis::channel, std::nullopt);
  // A row begins at the first requested channel, or at its first one.
  std::int64_t row_begin = channels.empty() ? 0 : channels.front().bits;
  if (wanted.pick.channels) {
    channels = stops(plane, Axis::channel, wanted.pick.channels);
    for (const AxisStop& c : channels) {
      if (c.coordinate == wanted.pick.channels->front()) row_begin = c.bits;
    }
  }
  const auto row = [&](std::int64_t sum) {
    const std::int64_t shift = aligned_shift(plane, address(plane, sum + row_begin));
    for (const AxisStop& channel : channels) {
      stop.channel = channel.coordinate;
      stop.bit = address(plane, sum + channel.bits) + shift;
      f(static_cast<const Stop&>(stop));
    }
  };
  const auto rows = [&](std::int64_t sum) {
    for (const AxisStop& head : heads) {
      stop.head = head.coordinate;
      row(sum + head.bits);
    }
  };
  const auto blocks = stop.whole ? std::map<std::int64_t, std::vector<std::int64_t>>{} : block_stops(plane, ids);
  for (const AxisStop& kv : kvs) {
    stop.kv = kv.coordinate;
    for (const AxisStop& layer : layers) {
      stop.layer = layer.coordinate;
      const std::int64_t outer = kv.bits + layer.bits;
      if (stop.whole) {
        stop.token = 0;
        rows(outer);
        continue;
      }
      for (const BlockTokens& b : wanted.blocks) {
        const auto at = blocks.find(b.block);
        if (at == blocks.end()) continue;
        for (const std::int64_t block_bits : at->second) {
          for (const AxisStop& slot : slots) {
            stop.token = b.first + slot.coordinate;
            if (stop.token < wanted.begin || stop.token >= wanted.end) continue;
            if (wanted.pick.tokens &&
                std::find(wanted.pick.tokens->begin(), wanted.pick.tokens->end(), stop.token) == wanted.pick.tokens->end()) {
              continue;
            }
            rows(outer + block_bits + slot.bits);
          }
        }
      }
    }
  }
}

}  // namespace kvcts::scenario
