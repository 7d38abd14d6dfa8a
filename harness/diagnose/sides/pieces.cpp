#include "diagnose/sides/pieces.hpp"

#include <algorithm>
#include <tuple>

#include "diagnose/sides/places.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

using layout::Axis;

namespace {

/// One piece per run of channels, counted in bits for now.
std::vector<Piece> elements(const Scene& scene) {
  std::vector<Piece> out;
  const auto& c = scene.truth;
  if (c.groups.size() != 1) return out;
  const auto& group = c.groups[0];
  std::vector<const layout::Cache*> producers;
  std::vector<std::int64_t> bases;  // bits of each producer file before its allocation
  for (const auto& rank : group.producer.ranks) {
    producers.push_back(&rank.truth);
    for (const auto& allocation : rank.truth.allocations) bases.push_back(oracle::file_shape(c, allocation.bytes).base * 8);
  }
  const CachePlaces sources(producers);
  const std::int64_t from_size = group.producer.ranks.at(0).geometry.block_size,
                     to_size = group.consumer.ranks.at(0).geometry.block_size;
  std::size_t first_file = 0;
  for (std::size_t r = 0; r < group.consumer.ranks.size(); ++r) {
    const auto& cache = group.consumer.ranks[r].truth;
    for (const auto& plane : cache.planes) {
      const Places target(plane);
      const auto base = oracle::file_shape(c, cache.allocations[static_cast<std::size_t>(plane.allocation)].bytes).base * 8;
      const bool blocked =
          std::any_of(plane.modes.begin(), plane.modes.end(), [](auto& m) { return m.axis == Axis::block; });
      const auto box = layout::domain(plane);
      bool visited = false;
      for (const auto& request : group.requests) {
        if (!request.transfer || (visited && !blocked)) continue;
        for (std::int64_t token = 0; token < (blocked ? request.tokens : 1); ++token) {
          visited = true;
          layout::Coord at = box.lo, source = box.lo;
          if (blocked) {
            at[Axis::block] = request.consumer_blocks.at(static_cast<std::size_t>(token / to_size)),
            at[Axis::slot] = token % to_size;
            source[Axis::block] = request.producer_blocks.at(static_cast<std::size_t>(token / from_size)),
            source[Axis::slot] = token % from_size;
          }
          each_run(target, sources, box, at, source,
                   [&](std::int64_t to, const CachePlaces::Place& from, std::int64_t count, const layout::Coord& first) {
                     Piece p;
                     p.from_file = from.file, p.from = bases[from.file] + from.bit;
                     p.to_file = first_file + static_cast<std::size_t>(plane.allocation), p.to = base + to;
                     p.bytes = target.width() * count, p.component = plane.component, p.first = first, p.token = token,
                     p.rank = r;
                     out.push_back(p);
                   });
        }
      }
    }
    first_file += cache.allocations.size();
  }
  std::sort(out.begin(), out.end(),
            [](const Piece& a, const Piece& b) { return std::tie(a.to_file, a.to) < std::tie(b.to_file, b.to); });
  return out;
}

/// In bytes; none if a piece begins or ends inside one.
std::vector<Piece> joined(std::vector<Piece> list, bool rows) {
  std::vector<Piece> out;
  for (const auto& p : list) {
    if (!out.empty()) {
      Piece& last = out.back();
      const bool same_row = last.component == p.component && last.token == p.token &&
                            last.first[Axis::layer] == p.first[Axis::layer] && last.first[Axis::kv] == p.first[Axis::kv] &&
                            last.first[Axis::head] == p.first[Axis::head];
      if (last.to_file == p.to_file && last.from_file == p.from_file && last.to_end() == p.to && last.from_end() == p.from &&
          (!rows || same_row)) {
        last.bytes += p.bytes;
        continue;
      }
    }
    out.push_back(p);
  }
  for (auto& p : out) {
    if (p.from % 8 != 0 || p.to % 8 != 0 || p.bytes % 8 != 0) return {};
    p.from /= 8, p.to /= 8, p.bytes /= 8;
  }
  return out;
}

}  // namespace

std::vector<Piece> pieces_of(const Scene& scene) { return joined(elements(scene), false); }
std::vector<Piece> rows_of(const Scene& scene) { return joined(elements(scene), true); }

std::vector<std::vector<std::uint8_t>> moved(const Scene& scene, const std::vector<Piece>& pieces) {
  std::vector<std::vector<std::uint8_t>> out;
  for (const auto& before : scene.consumer_before) out.emplace_back(before.begin(), before.end());
  for (const auto& p : pieces) {
    if (p.from_file >= scene.producer.size() || p.to_file >= out.size()) continue;
    const auto& from = scene.producer[p.from_file];
    auto& to = out[p.to_file];
    for (std::int64_t i = 0; i < p.bytes; ++i) {
      const auto s = p.from + i, t = p.to + i;
      if (s < 0 || t < 0 || s >= static_cast<std::int64_t>(from.size()) || t >= static_cast<std::int64_t>(to.size()))
        continue;
      to[static_cast<std::size_t>(t)] = from[static_cast<std::size_t>(s)];
    }
  }
  return out;
}

}  // namespace kvcts::diagnose
