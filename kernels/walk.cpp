#include "kernels/walk.hpp"

#include <algorithm>
#include <string>

namespace kvcts::kernels {
namespace {

using layout::Axis;

struct Limit {
  Axis axis;
  std::int64_t end;
};

void check_coordinates(const layout::Plane& plane) {
  // channel: counts a row's words in 32 bits, and sizes buffers
  for (const Limit limit : {Limit{Axis::kv, 1 << 4}, Limit{Axis::layer, 1 << 24}, Limit{Axis::head, 1 << 20},
                            Limit{Axis::channel, std::int64_t{1} << 31}}) {
    const Extremes range = extremes(plane, limit.axis);
    if (range.least < 0 || range.most >= limit.end) {
      throw layout::Error(std::string("axis ") + layout::letter(limit.axis) + " of a plane must lie in [0, " +
                          std::to_string(limit.end) + ") for tag/1, found [" + std::to_string(range.least) + ", " +
                          std::to_string(range.most) + "]");
    }
  }
  extremes(plane, Axis::block);
  extremes(plane, Axis::slot);
}

void check_content(std::span<const BlockContent> content) {
  constexpr std::int64_t token_end = std::int64_t{1} << 44;
  for (const BlockContent& block : content) {
    if (block.tokens < 0 || block.first_token < 0 || block.tokens > token_end - block.first_token) {
      throw layout::Error("block " + std::to_string(block.block) + " must hold tokens within [0, 2^44), found " +
                          std::to_string(block.tokens) + " tokens from " + std::to_string(block.first_token) + " on");
    }
    if (block.first_slot < 0 || block.first_slot > token_end) {
      throw layout::Error("block " + std::to_string(block.block) + " must start at a slot within [0, 2^44], found " +
                          std::to_string(block.first_slot));
    }
  }
}

const layout::Plane& checked(std::size_t allocation_bytes, const layout::Plane& plane,
                             std::span<const BlockContent> content) {
  check_plane(plane, code_rule(plane.dtype).width, allocation_bytes);
  check_coordinates(plane);
  check_content(content);
  return plane;
}

/// Content by block; entries of one block keep their order.
std::vector<BlockContent> by_block(std::span<const BlockContent> content) {
  std::vector<BlockContent> out(content.begin(), content.end());
  const auto before = [](const BlockContent& a, const BlockContent& b) { return a.block < b.block; };
  if (!std::is_sorted(out.begin(), out.end(), before)) std::stable_sort(out.begin(), out.end(), before);
  return out;
}

/// Splits long blocks, so that threads can share one of a whole sequence, too.
std::vector<BlockContent> short_blocks(std::span<const BlockContent> content) {
  constexpr std::int64_t most = 1024;
  std::vector<BlockContent> out;
  for (BlockContent block : content) {
    for (; block.tokens > most; block.tokens -= most, block.first_slot += most, block.first_token += most) {
      out.push_back(block);
      out.back().tokens = most;
    }
    out.push_back(block);
  }
  return out;
}

}  // namespace

Map::Map(std::size_t allocation_bytes, const layout::Plane& p, std::span<const BlockContent> content, const TagKey& k)
    : plane(checked(allocation_bytes, p, content)),
      key(k),
      writer(p.dtype, p.component, p.high_nibble_first),
      blocks(p),
      slots(p, Axis::slot),
      heads(p, Axis::head),
      shape(p, AxisTable(p, Axis::channel), writer.width()) {
  const AxisTable layers(p, Axis::layer), kvs(p, Axis::kv);
  const auto add = [this](const AxisEntry& layer, const AxisEntry& kv) {
    layer_kvs.push_back({layer.coord, kv.coord, layer.bit + kv.bit});
  };
  if (layers.pitch() >= kvs.pitch()) {
    for (const AxisEntry& layer : layers.entries()) {
      for (const AxisEntry& kv : kvs.entries()) add(layer, kv);
    }
  } else {
    for (const AxisEntry& kv : kvs.entries()) {
      for (const AxisEntry& layer : layers.entries()) add(layer, kv);
    }
  }
  const auto distance = [](const AxisTable& table) { return table.entries().size() > 1 ? table.pitch() : 0; };
  const std::int64_t further = std::min(distance(layers), distance(kvs)), nearer = std::max(distance(layers), distance(kvs));
  if (nearer < blocks.pitch()) {
    inside_block = layer_kvs.size();
  } else if (further < blocks.pitch()) {
    inside_block = (layers.pitch() >= kvs.pitch() ? kvs : layers).entries().size();
  }
  blocked = std::any_of(p.modes.begin(), p.modes.end(),
                        [](const layout::Mode& mode) { return mode.axis == Axis::block || mode.axis == Axis::slot; });
  std::int64_t bits = writer.width() * static_cast<std::int64_t>(layer_kvs.size());
  for (const layout::Mode& mode : p.modes) {
    if (mode.axis == Axis::slot || mode.axis == Axis::head || mode.axis == Axis::channel) bits *= mode.extent;
  }
  block_bytes = bits / 8;
  std::int64_t low = p.offset, high = p.offset + writer.width();
  for (const layout::Mode& mode : p.modes) {
    if (mode.axis != Axis::block) (mode.stride < 0 ? low : high) += (mode.extent - 1) * mode.stride;
  }
  block_span = {low / 8, (high + 7) / 8};
}

Cuts::Cuts(std::span<const Map* const> maps, std::span<const BlockContent> content, int threads)
    : content_(by_block(short_blocks(content))) {
  // A slot named twice keeps its order, and two slots may share a byte; otherwise a long block may be split, too.
  const bool anywhere = !any_twice(content) && std::all_of(maps.begin(), maps.end(), [](const Map* map) {
    return map->writer.width() >= 8 || map->shape.way == Way::rows;
  });
  const std::size_t wanted = static_cast<std::size_t>(threads) * 8;
  const std::span<const BlockContent> ordered(content_);
  const std::size_t each = std::max<std::size_t>(1, (ordered.size() + wanted - 1) / wanted);
  for (std::size_t begin = 0; begin < ordered.size();) {
    std::size_t end = std::min(ordered.size(), begin + each);
    while (!anywhere && end < ordered.size() && ordered[end].block == ordered[end - 1].block) ++end;
    cuts_.push_back(ordered.subspan(begin, end - begin));
    begin = end;
  }
}

std::vector<Part> parts(const Map& map, const Cuts& cuts) {
  constexpr std::size_t enough = 16;
  std::vector<Part> out;
  const std::span<const LayerKv> all(map.layer_kvs);
  const std::size_t each = cuts.all().size() >= enough ? all.size() : map.inside_block;
  for (std::size_t k = 0; k < all.size(); k += each) {
    for (const auto& cut : cuts.all()) out.push_back({all.subspan(k, std::min(each, all.size() - k)), cut});
  }
  return out;
}

bool any_twice(std::span<const BlockContent> content) {
  const auto ordered = by_block(content);
  for (std::size_t a = 0; a < ordered.size(); ++a) {
    for (std::size_t b = a + 1; b < ordered.size() && ordered[b].block == ordered[a].block; ++b) {
      const BlockContent &x = ordered[a], &y = ordered[b];
      if (x.first_slot < y.first_slot + y.tokens && y.first_slot < x.first_slot + x.tokens) return true;
    }
  }
  return false;
}

}  // namespace kvcts::kernels
