// Connectors that look only at dim 0 of a tensor: they take it for the blocks, whatever it holds. Id i is then the i-th slab
// of the allocation, and moves whole. (vLLM 0.33.0 and 0.27.1: NixlConnector and MooncakeConnector, given (2, blocks, ...).)
#include <array>

#include "diagnose/hypotheses/copy_list.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

constexpr std::array axes{Axis::block, Axis::kv, Axis::layer, Axis::head, Axis::slot};

struct Slabs {
  std::int64_t count{0}, bytes{0};
};

/// How an allocation divides into slabs along an axis: nothing if index i's elements are not alone in the i-th part.
std::optional<Slabs> slabs_along(const layout::Cache& cache, std::size_t allocation, Axis axis) {
  std::int64_t low = -1, count = 0;
  for (const auto& plane : cache.planes) {
    if (static_cast<std::size_t>(plane.allocation) != allocation) continue;
    const auto box = layout::domain(plane);
    low = low < 0 ? box.lo[axis] : std::min(low, box.lo[axis]);
    count = std::max(count, box.hi[axis]);
  }
  count -= std::max<std::int64_t>(low, 0);
  if (count > 1 << 16) return std::nullopt;
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

std::string symbol_of(Axis axis) {
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

/// A move of whole slabs, ids counted along these axes; nothing if the slabs of both ends differ in size.
std::optional<std::vector<ListedCopy>> slabs_moved(HypothesisSearch& search, std::size_t step, Axis from, Axis to) {
  const Action& a = search.action(step);
  if (a.from.size() != 1 || a.to.size() != 1) return std::nullopt;
  const auto sources = table_at(search, step, true), targets = table_at(search, step, false);
  const layout::Cache source = cache_of(a.from[0]), target = cache_of(a.to[0]);
  if (!sources || !targets || source.allocations.size() != target.allocations.size()) return std::nullopt;
  const auto source_places = search.evidence().space.addresses(a.from[0], source),
             target_places = search.evidence().space.addresses(a.to[0], target);
  constexpr std::int64_t most = 16 << 20;  // bytes: no engine was seen to move the halves of a vast pool
  std::int64_t bytes = 0;
  std::vector<ListedCopy> out;
  for (std::size_t k = 0; k < source.allocations.size(); ++k) {
    const auto p = slabs_along(source, k, from), c = slabs_along(target, k, to);
    if (!p || !c || p->bytes != c->bytes) return std::nullopt;
    for (std::size_t i = 0; i < std::min(sources->size(), targets->size()); ++i) {
      const std::int64_t s = (*sources)[i], t = (*targets)[i];
      if (s < 0 || t < 0 || s >= p->count || t >= c->count) continue;
      BufferAddress at = source_places[k], there = target_places[k];
      at.offset += s * p->bytes, there.offset += t * c->bytes;
      if ((bytes += p->bytes) > most) return std::nullopt;
      out.push_back({at, there, p->bytes});
    }
  }
  return out;
}

}  // namespace

void generate_slabs(HypothesisSearch& search) {
  for (const Axis from : axes) {
    for (const Axis to : axes) {
      if (from == Axis::block && to == Axis::block) continue;
      CandidateSteps bodies = search.bodies();
      bool all = true;
      for (std::size_t i = 0; i < bodies.size() && all; ++i) {
        if (search.action(i).op != Operation::move) continue;
        const auto copies = slabs_moved(search, i, from, to);
        all = copies.has_value();
        if (copies) bodies[i] = written_out(search, i, *copies);
      }
      if (!all) continue;
      const Axis wrong = from == Axis::block ? to : from;
      const std::string where = from == to            ? ""
                                : from == Axis::block ? " at the destination"
                                : to == Axis::block   ? " at the source"
                                                      : ", and " + symbol_of(to) + " at the destination";
      search.attempt(wrong == Axis::kv ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted,
                     symbol_of(wrong) + ", the first dim of the tensor, were taken for the blocks" + where +
                         ": block id i was moved as part i of the whole tensor",
                     std::move(bodies));
    }
  }
}

}  // namespace kvcts::scenario
