#include "kernels/relayout.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/axis_table.hpp"

namespace kvcts::kernels {
namespace {

using layout::Axis;
using layout::Error;
using layout::Plane;

void require_sane(const Plane& plane, std::size_t bytes) {
  layout::Cache cache;
  cache.allocations.push_back({"the memory", static_cast<std::int64_t>(bytes)});
  cache.planes.push_back(plane);
  cache.planes.front().allocation = 0;
  layout::validate(cache);
}

/// One axis of a copy: its i-th code is from[i] bits after the source's base and to[i] bits after the target's.
struct Steps {
  std::vector<std::int64_t> from{}, to{};
};

struct Copy {
  std::span<const std::uint8_t> from_bytes;
  std::span<std::uint8_t> to_bytes;
  int width;
  bool from_high, to_high;  ///< nibble order of 4-bit codes

  void run(std::int64_t from, std::int64_t to, std::span<const Steps> axes) const {
    if (axes.empty()) return move(from, to);
    const Steps& axis = axes.front();
    for (std::size_t i = 0; i < axis.from.size(); ++i) run(from + axis.from[i], to + axis.to[i], axes.subspan(1));
  }

 private:
  void move(std::int64_t from, std::int64_t to) const {
    if (width >= 8) {
      std::memcpy(&to_bytes[static_cast<std::size_t>(to / 8)], &from_bytes[static_cast<std::size_t>(from / 8)],
                  static_cast<std::size_t>(width / 8));
      return;
    }
    const auto shift = [](std::int64_t bit, bool high) { return static_cast<int>(bit % 8) ^ (high ? 4 : 0); };
    const int code = (from_bytes[static_cast<std::size_t>(from / 8)] >> shift(from, from_high)) & 0xf;
    std::uint8_t& byte = to_bytes[static_cast<std::size_t>(to / 8)];
    byte = static_cast<std::uint8_t>((byte & ~(0xf << shift(to, to_high))) | (code << shift(to, to_high)));
  }
};

std::int64_t size(const AxisTable& axis) { return static_cast<std::int64_t>(axis.entries().size()); }

/// Bit of the one entry at this coordinate.
std::int64_t bit_of(const AxisTable& table, Axis axis, std::int64_t coord, const std::string& of) {
  const auto found = table.within(coord, coord + 1);
  if (found.empty())
    throw Error(of + ": expected a " + std::string(layout::name(axis)) + " of " + std::to_string(size(table)) + " from " +
                std::to_string(table.entries().front().coord) + " on, found " + std::to_string(coord));
  return found.front().bit;
}

/// An axis of a pool, to consecutive places of `step` bits.
Steps packed(const AxisTable& axis, std::int64_t step) {
  Steps steps;
  for (const AxisEntry& entry : axis.entries()) {
    steps.to.push_back(static_cast<std::int64_t>(steps.from.size()) * step);
    steps.from.push_back(entry.bit);
  }
  return steps;
}

}  // namespace

void relayout(std::span<const std::uint8_t> from_bytes, const Plane& from, std::span<std::uint8_t> to_bytes,
              const Plane& to) {
  if (from.dtype != to.dtype || from.component != to.component)
    throw Error("relayout moves codes as they are: expected planes of one dtype and component, found " +
                layout::to_text(from) + " and " + layout::to_text(to));
  require_sane(from, from_bytes.size());
  require_sane(to, to_bytes.size());
  std::vector<Steps> axes;
  for (const Axis axis : layout::all_axes) {
    const AxisTable source(from, axis), target(to, axis);
    Steps& steps = axes.emplace_back();
    for (const AxisEntry& entry : target.entries()) {
      steps.from.push_back(bit_of(source, axis, entry.coord, "the relayout's source"));
      steps.to.push_back(entry.bit);
    }
    if (size(source) != size(target))
      throw Error("expected the same coordinates on both sides, found " + std::to_string(size(source)) + " and " +
                  std::to_string(size(target)) + " on axis " + std::string(layout::name(axis)));
  }
  const Copy copy{from_bytes, to_bytes, layout::bits(from.dtype), from.high_nibble_first, to.high_nibble_first};
  copy.run(from.offset, to.offset, axes);
}

void gather(std::span<const std::uint8_t> pool, const Plane& plane, Part part, std::span<const std::int64_t> block_table,
            std::int64_t tokens, std::span<std::uint8_t> rows) {
  require_sane(plane, pool.size());
  const AxisTable layers(plane, Axis::layer), kv(plane, Axis::kv), blocks(plane, Axis::block), slots(plane, Axis::slot),
      heads(plane, Axis::head), channels(plane, Axis::channel);
  const int width = layout::bits(plane.dtype);
  const std::int64_t needed = (tokens + size(slots) - 1) / size(slots);
  if (tokens < 0 || std::cmp_less(block_table.size(), needed))
    throw Error(std::to_string(tokens) + " tokens in blocks of " + std::to_string(size(slots)) + " need a block table of " +
                std::to_string(needed) + " blocks, found " + std::to_string(block_table.size()) +
                "; check the context length and the block size");
  if (std::cmp_not_equal(rows.size(), row_bytes(plane, tokens)))
    throw Error("rows of " + std::to_string(tokens) + " tokens have " + std::to_string(row_bytes(plane, tokens)) +
                " bytes here, found " + std::to_string(rows.size()) + "; they are packed [tokens, heads, channels]");
  const std::int64_t base =
      plane.offset + bit_of(layers, Axis::layer, part.layer, "the pool") + bit_of(kv, Axis::kv, part.kv, "the pool");
  Steps places;
  for (std::int64_t entry = 0; entry < needed; ++entry) {
    const std::int64_t block = bit_of(blocks, Axis::block, block_table[static_cast<std::size_t>(entry)],
                                      "entry " + std::to_string(entry) + " of the block table");
    for (const AxisEntry& slot : slots.entries()) {
      if (std::cmp_equal(places.to.size(), tokens)) break;
      places.to.push_back(static_cast<std::int64_t>(places.to.size()) * size(heads) * size(channels) * width);
      places.from.push_back(block + slot.bit);
    }
  }
  const std::vector<Steps> axes{std::move(places), packed(heads, size(channels) * width), packed(channels, width)};
  Copy{pool, rows, width, plane.high_nibble_first, false}.run(base, 0, axes);
}

std::int64_t row_bytes(const Plane& plane, std::int64_t tokens) {
  return (tokens * size({plane, Axis::head}) * size({plane, Axis::channel}) * layout::bits(plane.dtype) + 7) / 8;
}

}  // namespace kvcts::kernels
