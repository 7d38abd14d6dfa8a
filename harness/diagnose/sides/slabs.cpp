// Connectors that look only at dim 0 of a tensor: they take it for the blocks, whatever it holds. Id i is then the i-th slab
// of the allocation, and moves whole. (vLLM 0.33.0 and 0.27.1: NixlConnector and MooncakeConnector, given (2, blocks, ...).)
#include <algorithm>
#include <optional>

#include "diagnose/sides/hypotheses.hpp"
#include "diagnose/sides/pieces.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

using layout::Axis;

namespace {

struct Slabs {
  std::int64_t count{0}, bytes{0};
};

/// How the allocation divides into slabs along the axis: nothing if index i's elements are not alone in the i-th part.
std::optional<Slabs> slabs_along(const layout::Cache& cache, std::size_t allocation, Axis axis) {
  std::int64_t low = -1, count = 0;
  for (const auto& plane : cache.planes) {
    if (static_cast<std::size_t>(plane.allocation) != allocation) continue;
    const auto box = layout::domain(plane);
    low = low < 0 ? box.lo[axis] : std::min(low, box.lo[axis]);
    count = std::max(count, box.hi[axis]);
  }
  count -= std::max<std::int64_t>(low, 0);
  const std::int64_t all = cache.allocations[allocation].bytes;
  if (low < 0 || count < 2 || all % count != 0) return std::nullopt;
  const Slabs out{count, all / count};
  for (const auto& plane : cache.planes) {
    if (static_cast<std::size_t>(plane.allocation) != allocation) continue;
    const auto box = layout::domain(plane);
    for (auto i = box.lo[axis]; i < box.hi[axis]; ++i) {
      layout::Coord first = box.lo, last = box.hi;
      for (const Axis each : layout::all_axes) --last[each];
      first[axis] = last[axis] = i;
      const auto begin = layout::locate(plane, first), end = layout::locate(plane, last);
      if (!begin || !end || begin->bit < (i - low) * out.bytes * 8 || end->bit >= (i - low + 1) * out.bytes * 8)
        return std::nullopt;
    }
  }
  return out;
}

/// For each of a side's regions, in order; nothing if one has no such slabs.
std::optional<std::vector<Slabs>> slabs_of(const SideCache& side, const std::vector<RegionRef>& files, Axis axis) {
  std::vector<Slabs> out;
  for (const auto& file : files) {
    const auto slabs =
        slabs_along(side.ranks[static_cast<std::size_t>(file.rank)].truth, static_cast<std::size_t>(file.allocation), axis);
    if (!slabs) return std::nullopt;
    out.push_back(*slabs);
  }
  return out;
}

std::string name_of(Axis axis) {
  switch (axis) {
    case Axis::kv:
      return "K and V";
    case Axis::layer:
      return "the layers";
    case Axis::head:
      return "the heads";
    case Axis::slot:
      return "the slots";
    default:
      return "the blocks";
  }
}

/// Ids counted along these slabs; nothing if the sides' slabs differ in size.
std::optional<std::vector<Piece>> slabs_moved(const ResolvedCase& c, const std::vector<Slabs>& from,
                                              const std::vector<Slabs>& to) {
  std::vector<Piece> out;
  for (std::size_t k = 0; k < from.size(); ++k) {
    if (from[k].bytes != to[k].bytes) return std::nullopt;
    const auto source_base = oracle::file_shape(c, from[k].count * from[k].bytes).base,
               target_base = oracle::file_shape(c, to[k].count * to[k].bytes).base;
    for (const auto& request : c.groups[0].requests) {
      if (!request.transfer) continue;
      for (std::size_t i = 0; i < std::min(request.producer_blocks.size(), request.consumer_blocks.size()); ++i) {
        const auto source = request.producer_blocks[i], target = request.consumer_blocks[i];
        if (source >= from[k].count || target >= to[k].count) continue;
        Piece p;
        p.from_file = p.to_file = k, p.bytes = from[k].bytes;
        p.from = source_base + source * p.bytes, p.to = target_base + target * p.bytes;
        out.push_back(p);
      }
    }
  }
  return out;
}

}  // namespace

void another_axis_for_blocks(const Scene& scene, Proposals& out) {
  if (scene.truth.groups.size() != 1) return;
  const auto& group = scene.truth.groups[0];
  const auto sources = regions(scene.truth, Side::producer), targets = regions(scene.truth, Side::consumer);
  if (sources.size() != targets.size()) return;
  std::vector<std::pair<Axis, std::vector<Slabs>>> producer, consumer;
  for (const Axis axis : {Axis::block, Axis::kv, Axis::layer, Axis::head, Axis::slot}) {
    if (auto slabs = slabs_of(group.producer, sources, axis)) producer.emplace_back(axis, std::move(*slabs));
    if (auto slabs = slabs_of(group.consumer, targets, axis)) consumer.emplace_back(axis, std::move(*slabs));
  }
  for (const auto& [from, produced] : producer) {
    for (const auto& [to, consumed] : consumer) {
      if (from == Axis::block && to == Axis::block) continue;
      const auto pieces = slabs_moved(scene.truth, produced, consumed);
      if (!pieces) continue;
      const bool both = from == to;
      const Axis wrong = from == Axis::block ? to : from;
      const std::string where = both                  ? ""
                                : from == Axis::block ? " on the consumer"
                                : to == Axis::block   ? " on the producer"
                                                      : ", and " + name_of(to) + " on the consumer";
      Variant v{wrong == Axis::kv ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted,
                name_of(wrong) + ", the first dim of the tensor, were taken for the blocks" + where +
                    ": block id i was moved as part i of the whole tensor",
                {}};
      v.images = Variant::Predicted{moved(scene, *pieces), {}};
      out.push_back(std::move(v));
    }
  }
}

}  // namespace kvcts::diagnose
