#include <algorithm>

#include "diagnose/sides/diagnose.hpp"
#include "diagnose/sides/places.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

using layout::Axis;

namespace {

/// Copies `count` codes that are packed on both sides. Skips what lies outside its file, as under a wrong map.
void copy_codes(ByteView from, std::int64_t from_bit, std::span<std::uint8_t> to, std::int64_t to_bit, int width,
                std::int64_t count) {
  const auto inside = [](std::int64_t bit, std::int64_t bits, std::size_t bytes) {
    return bit >= 0 && bit + bits <= static_cast<std::int64_t>(bytes) * 8;
  };
  const std::int64_t bits = width * count;
  if (inside(from_bit, bits, from.size()) && inside(to_bit, bits, to.size()) && (from_bit | to_bit | bits) % 8 == 0) {
    std::copy_n(from.begin() + from_bit / 8, bits / 8, to.begin() + to_bit / 8);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i, from_bit += width, to_bit += width) {
    if (!inside(from_bit, width, from.size()) || !inside(to_bit, width, to.size())) continue;
    if (width >= 8) {
      std::copy_n(from.begin() + from_bit / 8, width / 8, to.begin() + to_bit / 8);
      continue;
    }
    const int code = (from[static_cast<std::size_t>(from_bit / 8)] >> (from_bit % 8)) & 0xF;
    auto& byte = to[static_cast<std::size_t>(to_bit / 8)];
    byte = static_cast<std::uint8_t>((byte & ~(0xF << (to_bit % 8))) | (code << (to_bit % 8)));
  }
}

std::vector<const layout::Cache*> pointers(const std::vector<layout::Cache>& caches) {
  std::vector<const layout::Cache*> out;
  for (const auto& cache : caches) out.push_back(&cache);
  return out;
}

}  // namespace

void predict_moved(const Scene& scene, const Maps& maps, std::size_t consumer_file, std::span<std::uint8_t> out,
                   const ResolvedCase* believed) {
  const auto& before = scene.consumer_before[consumer_file];
  std::copy(before.begin(), before.end(), out.begin());
  const auto& group = (believed != nullptr ? *believed : scene.truth).groups.at(0);
  const std::int64_t producer_size = group.producer.ranks.at(0).geometry.block_size,
                     consumer_size = group.consumer.ranks.at(0).geometry.block_size;
  const CachePlaces sources(pointers(maps.producer));
  std::vector<std::int64_t> bases;  // bits of each producer file before its allocation
  for (const auto& cache : maps.producer) {
    for (const auto& allocation : cache.allocations)
      bases.push_back(oracle::file_shape(scene.truth, allocation.bytes).base * 8);
  }
  std::size_t first_file = 0;
  for (const auto& cache : maps.consumer) {
    for (const auto& plane : cache.planes) {
      if (first_file + static_cast<std::size_t>(plane.allocation) != consumer_file) continue;
      const Places target(plane);
      const auto base =
          oracle::file_shape(scene.truth, cache.allocations[static_cast<std::size_t>(plane.allocation)].bytes).base * 8;
      const auto box = layout::domain(plane);
      for (const auto& request : group.requests) {
        if (!request.transfer) continue;
        for (std::int64_t token = 0; token < request.tokens; ++token) {
          layout::Coord at, source;
          at[Axis::block] = request.consumer_blocks.at(static_cast<std::size_t>(token / consumer_size));
          at[Axis::slot] = token % consumer_size;
          source[Axis::block] = request.producer_blocks.at(static_cast<std::size_t>(token / producer_size));
          source[Axis::slot] = token % producer_size;
          each_run(target, sources, box, at, source,
                   [&](std::int64_t to, const CachePlaces::Place& from, std::int64_t count, const layout::Coord&) {
                     copy_codes(scene.producer[from.file], bases[from.file] + from.bit, out, base + to, target.width(),
                                count);
                   });
        }
      }
    }
    first_file += cache.allocations.size();
  }
}

}  // namespace kvcts::diagnose
