#include "scene/oracle/oracle.hpp"

#include <algorithm>

#include "kernels/image.hpp"

namespace kvcts::oracle {

using layout::Axis;
using layout::Plane;

kernels::TagKey tag_key(const ResolvedCase& c, int pass) { return {c.seed, static_cast<std::uint32_t>(pass), 0}; }

namespace {

// Values that belong to a cache rather than to a block (a global scale) carry the first request's generation.
std::uint32_t unblocked_generation(const Group& group) {
  return group.requests.empty() ? 1 : group.requests.front().generation;
}

void write_tags(const ResolvedCase& c, const RegionRef& region, int pass, bool transferred_only,
                std::span<std::uint8_t> file) {
  const auto shape = file_shape(c, region.bytes);
  const auto allocation = file.subspan(static_cast<std::size_t>(shape.base), static_cast<std::size_t>(shape.bytes));
  const auto& group = c.groups.at(static_cast<std::size_t>(region.group));
  const auto blocks = content(group, region.side, transferred_only);
  if (blocks.empty()) return;
  for (const Plane& plane : rank_of(c, region).truth.planes) {
    if (plane.allocation != region.allocation) continue;
    kernels::generate(allocation, plane, blocks, tag_key(c, pass), unblocked_generation(group));
  }
}

std::int64_t block_size(const Group& group, Side side) {
  const auto& ranks = (side == Side::producer ? group.producer : group.consumer).ranks;
  return ranks.empty() ? 0 : ranks.front().geometry.block_size;
}

}  // namespace

FileShape file_shape(const ResolvedCase& c, std::int64_t allocation_bytes) {
  constexpr std::int64_t page = 4096;
  const std::int64_t base = c.guard_bytes + c.misalign;
  const std::int64_t size = (base + allocation_bytes + c.guard_bytes + page - 1) / page * page;
  return {size, base, allocation_bytes};
}

std::uint64_t region_key(const ResolvedCase& c, const RegionRef& r) {
  // Ranks of later groups follow those of the first, so every file of a case has a distinct key.
  const auto rank = static_cast<std::uint32_t>(r.group * 256 + r.rank);
  return kernels::poison_key(c.seed, r.side == Side::producer ? 0 : 1, rank, static_cast<std::uint32_t>(r.allocation));
}

std::uint64_t output_key(const ResolvedCase& c) { return kernels::poison_key(c.seed, 2, 0, 0); }

std::vector<kernels::BlockContent> content(const Group& group, Side side, bool transferred_only) {
  std::vector<kernels::BlockContent> out;
  const std::int64_t size = block_size(group, side);
  for (const auto& request : group.requests) {
    if (transferred_only && !request.transfer) continue;
    const auto& blocks = side == Side::producer ? request.producer_blocks : request.consumer_blocks;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::int64_t first = static_cast<std::int64_t>(i) * size;
      if (first >= request.tokens) break;
      out.push_back({blocks[i], request.generation, first, 0, std::min(size, request.tokens - first)});
    }
  }
  return out;
}

void write_initial(const ResolvedCase& c, const RegionRef& region, int pass, std::span<std::uint8_t> file) {
  kernels::fill_poison(region_key(c, region), 0, file);
  // A case that moves nothing (reader only) has its content on the consumer from the start.
  if (region.side == Side::producer) write_tags(c, region, pass, false, file);
  if (region.side == Side::consumer && c.connector.kind == "none") write_tags(c, region, pass, true, file);
}

void write_expected(const ResolvedCase& c, const RegionRef& region, int pass, std::span<std::uint8_t> file) {
  kernels::fill_poison(region_key(c, region), 0, file);
  write_tags(c, region, pass, region.side == Side::consumer, file);
}

bool holds_expected(const ResolvedCase& c, const RegionRef& region, int pass, std::span<const std::uint8_t> file) {
  const auto shape = file_shape(c, region.bytes);
  const auto& group = c.groups.at(static_cast<std::size_t>(region.group));
  const auto blocks = content(group, region.side, region.side == Side::consumer);
  kernels::Image image{region_key(c, region), shape.base, shape.bytes, {}};
  for (const Plane& plane : rank_of(c, region).truth.planes) {
    if (plane.allocation != region.allocation || blocks.empty()) continue;
    image.tags.push_back({&plane, blocks, tag_key(c, pass), unblocked_generation(group)});
  }
  return kernels::check(image, file, 0).wrong_bytes == 0;
}

Amount transfer_bytes(const ResolvedCase& c) { return c.connector.kind == "none" ? Amount{} : content_bytes(c); }

Amount content_bytes(const ResolvedCase& c) {
  Amount amount;
  std::int64_t least_bits = 0, most_bits = 0;
  for (const auto& group : c.groups) {
    for (const auto& rank : group.consumer.ranks) {
      for (const Plane& plane : rank.truth.planes) {
        const auto box = layout::domain(plane);
        std::int64_t row = layout::bits(plane.dtype);  // bits of everything but block and slot
        for (Axis a : {Axis::layer, Axis::kv, Axis::head, Axis::channel}) {
          // Aliased coordinates (stride 0) are one value in memory.
          const bool alias = std::any_of(plane.modes.begin(), plane.modes.end(), [&](const layout::Mode& m) {
            return m.axis == a && m.stride == 0 && m.extent > 1;
          });
          if (!alias) row *= box.hi[a] - box.lo[a];
        }
        if (!has_axis(plane, Axis::block)) {
          least_bits += row, most_bits += row;
          continue;
        }
        for (const auto& request : group.requests) {
          if (!request.transfer) continue;
          const std::int64_t size = rank.geometry.block_size;
          // Slots of the first `tokens` positions for which the plane has a value: all, one in 16, or one per block.
          const auto values = [&](std::int64_t tokens) {
            std::int64_t count = 0;
            for (std::int64_t t = 0; t < tokens; ++t) {
              auto at = box.lo;
              at[Axis::slot] = t % size;
              count += layout::locate(plane, at).has_value();
            }
            return count;
          };
          least_bits += row * values(request.tokens);
          most_bits += row * values(static_cast<std::int64_t>(request.consumer_blocks.size()) * size);
        }
      }
    }
  }
  return {least_bits / 8, most_bits / 8};
}

Bytes expected_output(const ResolvedCase& c, int pass) {
  const auto& group = c.groups.at(0);
  const auto& rank = group.consumer.ranks.at(0);
  const auto& g = rank.geometry;
  const auto dtype = group.consumer.scheme.data;
  const std::int64_t row = g.head_dim * layout::bits(dtype) / 8;
  Bytes out;
  for (const auto& request : group.requests) {
    for (std::int64_t kv = 0; kv < g.kv; ++kv) {
      for (std::int64_t token = 0; token < request.tokens; ++token) {
        for (std::int64_t head = 0; head < g.heads; ++head) {
          const kernels::RowId id{layout::Component::data, kv,    g.first_layer,
                                  g.first_head + head,     token, request.generation};
          out.resize(out.size() + static_cast<std::size_t>(row));
          kernels::tag_row(kernels::row_key(tag_key(c, pass), id), id, dtype, 0, g.head_dim,
                           std::span(out).last(static_cast<std::size_t>(row)));
        }
      }
    }
  }
  return out;
}

std::string where(const ResolvedCase& c, const RegionRef& region, std::int64_t offset) {
  if (offset < 0) return "guard below";
  if (offset >= region.bytes) return "guard above";
  const auto found = layout::inverse(rank_of(c, region).truth, region.allocation, offset * 8);
  if (found.empty()) return "padding";
  const auto& plane = rank_of(c, region).truth.planes.at(static_cast<std::size_t>(found[0].plane));
  const auto& at = found[0].coord;
  std::string text;
  if (plane.component != layout::Component::data) text += std::string(layout::name(plane.component)) + " ";
  text += std::string(at[Axis::kv] == 0 ? "K" : "V") + " layer " + std::to_string(at[Axis::layer]);
  if (has_axis(plane, Axis::block))
    text += " block " + std::to_string(at[Axis::block]) + " slot " + std::to_string(at[Axis::slot]);
  text += " head " + std::to_string(at[Axis::head]) + " channel " + std::to_string(at[Axis::channel]);
  // Name the owner of the slot: a byte in a free block or beyond a request's tokens is damage, not content.
  if (has_axis(plane, Axis::block)) {
    bool used = false;
    const auto& group = c.groups.at(static_cast<std::size_t>(region.group));
    for (const auto& b : content(group, region.side, region.side == Side::consumer)) {
      used =
          used || (b.block == at[Axis::block] && at[Axis::slot] >= b.first_slot && at[Axis::slot] < b.first_slot + b.tokens);
    }
    if (!used) text += " (free slot)";
  }
  return text;
}

}  // namespace kvcts::oracle
