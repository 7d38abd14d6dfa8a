#include <algorithm>

#include "diagnose/diagnose.hpp"
#include "oracle/oracle.hpp"

namespace kvcts::diagnose {

using layout::Axis;

namespace {

void copy_code(ByteView from, std::int64_t from_bit, std::span<std::uint8_t> to, std::int64_t to_bit, int width) {
  if (width >= 8) {
    std::copy_n(from.begin() + from_bit / 8, width / 8, to.begin() + to_bit / 8);
    return;
  }
  const int code = (from[static_cast<std::size_t>(from_bit / 8)] >> (from_bit % 8)) & 0xF;
  auto& byte = to[static_cast<std::size_t>(to_bit / 8)];
  byte = static_cast<std::uint8_t>((byte & ~(0xF << (to_bit % 8))) | (code << (to_bit % 8)));
}

struct Place {
  std::size_t file{0};
  std::int64_t bit{0};
};

// First rank whose map holds the coordinate.
std::optional<Place> find(const ResolvedCase& c, const std::vector<layout::Cache>& maps, layout::Component component, const layout::Coord& at) {
  std::size_t first_file = 0;
  for (const auto& cache : maps) {
    if (const auto where = layout::locate(cache, component, at)) {
      const auto file = first_file + static_cast<std::size_t>(where->allocation);
      const auto base = oracle::file_shape(c, cache.allocations[static_cast<std::size_t>(where->allocation)].bytes).base;
      return Place{file, base * 8 + where->bit};
    }
    first_file += cache.allocations.size();
  }
  return std::nullopt;
}

}  // namespace

void predict_moved(const Scene& scene, const Maps& maps, std::size_t consumer_file, std::span<std::uint8_t> out) {
  const auto& before = scene.consumer_before[consumer_file];
  std::copy(before.begin(), before.end(), out.begin());
  const auto& group = scene.truth.groups.at(0);
  const std::int64_t producer_size = group.producer.ranks.at(0).geometry.block_size, consumer_size = group.consumer.ranks.at(0).geometry.block_size;
  std::size_t first_file = 0;
  for (const auto& cache : maps.consumer) {
    for (const auto& plane : cache.planes) {
      if (first_file + static_cast<std::size_t>(plane.allocation) != consumer_file) continue;
      const auto base = oracle::file_shape(scene.truth, cache.allocations[static_cast<std::size_t>(plane.allocation)].bytes).base * 8;
      const auto box = layout::domain(plane);
      const int width = layout::bits(plane.dtype);
      for (const auto& request : group.requests) {
        if (!request.transfer) continue;
        for (std::int64_t token = 0; token < request.tokens; ++token) {
          layout::Coord at, source;
          at[Axis::block] = request.consumer_blocks.at(static_cast<std::size_t>(token / consumer_size));
          at[Axis::slot] = token % consumer_size;
          source[Axis::block] = request.producer_blocks.at(static_cast<std::size_t>(token / producer_size));
          source[Axis::slot] = token % producer_size;
          for (auto l = box.lo[Axis::layer]; l < box.hi[Axis::layer]; ++l)
            for (auto k = box.lo[Axis::kv]; k < box.hi[Axis::kv]; ++k)
              for (auto h = box.lo[Axis::head]; h < box.hi[Axis::head]; ++h)
                for (auto c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
                  at[Axis::layer] = source[Axis::layer] = l, at[Axis::kv] = source[Axis::kv] = k;
                  at[Axis::head] = source[Axis::head] = h, at[Axis::channel] = source[Axis::channel] = c;
                  const auto to = layout::locate(plane, at);
                  if (!to) continue;
                  const auto from = find(scene.truth, maps.producer, plane.component, source);
                  if (from) copy_code(scene.producer[from->file], from->bit, out, base + to->bit, width);
                }
        }
      }
    }
    first_file += cache.allocations.size();
  }
}

}  // namespace kvcts::diagnose
