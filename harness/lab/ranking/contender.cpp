#include "lab/ranking/contender.hpp"

#include <algorithm>

namespace kvcts::ranking {
namespace {

using layout::Geometry;

Geometry geometry_for(const catalogue::LayoutEntry& entry, std::int64_t tokens) {
  Geometry geometry{.layers = 2, .blocks = 0, .block_size = 16, .heads = 8, .head_dim = 128};
  const std::pair<const char*, std::int64_t Geometry::*> members[] = {
      {"layers", &Geometry::layers},     {"block_size", &Geometry::block_size}, {"heads", &Geometry::heads},
      {"head_dim", &Geometry::head_dim}, {"v_head_dim", &Geometry::v_head_dim}, {"kv", &Geometry::kv},
      {"blocks", &Geometry::blocks}};
  for (const auto& [key, member] : members) {
    if (const auto fixed = entry.fixed.find(key); fixed != entry.fixed.end()) geometry.*member = fixed->second;
  }
  // One block: the whole context is contiguous, and the block is as long as the context.
  if (geometry.blocks == 1) geometry.block_size = tokens;
  if (geometry.blocks == 0) geometry.blocks = std::max<std::int64_t>(2, tokens / geometry.block_size);
  return geometry;
}

std::string dtype_for(const catalogue::LayoutEntry& entry) {
  const auto& can = entry.dtypes;
  return can.empty() || std::find(can.begin(), can.end(), "bf16") != can.end() ? "bf16" : can.front();
}

bool same(const Contender& a, const Contender& b) {
  return a.dtype == b.dtype && a.geometry == b.geometry && a.cache.allocations.size() == b.cache.allocations.size() &&
         layout::same_map(a.cache, b.cache);
}

}  // namespace

layout::Cache Contender::upper_half() const {
  Geometry half = geometry;
  half.heads /= 2;
  half.first_head = geometry.first_head + half.heads;
  return layout::instantiate(text, half, scheme, tensors);
}

std::vector<Contender> contenders(const catalogue::Catalogue& catalogue,
                                  const std::function<bool(const std::string&)>& wanted, std::int64_t tokens,
                                  std::vector<Left>& left) {
  std::vector<Contender> all;
  for (const auto& [id, entry] : catalogue.layouts()) {
    if (!wanted(id)) continue;
    Contender one;
    one.ids = {id};
    one.text = entry.text;
    one.tensors = entry.tensors;
    one.dtype = dtype_for(entry);
    one.geometry = geometry_for(entry, tokens);
    try {
      one.scheme = catalogue::scheme_of(catalogue.dtypes().at(one.dtype));
      one.cache = layout::instantiate(one.text, one.geometry, one.scheme, one.tensors);
    } catch (const layout::Error& e) {
      left.push_back({id, e.what()});
      continue;
    }
    const auto twin = std::find_if(all.begin(), all.end(), [&](const Contender& other) { return same(one, other); });
    if (twin != all.end()) {
      twin->ids.push_back(id);
    } else {
      all.push_back(std::move(one));
    }
  }
  return all;
}

Memory::Memory(const layout::Cache& cache) {
  for (const layout::Allocation& allocation : cache.allocations)
    all_.emplace_back(static_cast<std::size_t>(allocation.bytes), std::uint8_t{0x5b});
}

}  // namespace kvcts::ranking
