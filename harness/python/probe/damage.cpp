#include "python/probe/damage.hpp"

#include <algorithm>

#include "kernels/poison.hpp"

namespace kvcts::probe {

using kernels::BlockContent;
using layout::Axis;
using layout::Plane;

namespace {

constexpr std::size_t shown = 8;           ///< rows
constexpr std::size_t listed = 256 << 10;  ///< places of wrong bytes per allocation

kernels::Difference check(const Question& q, int allocation, const std::vector<BlockContent>& blocks) {
  const std::span<const std::uint8_t> bytes = q.bound.ranges[static_cast<std::size_t>(allocation)].bytes;
  if (q.content.poison)
    return kernels::check(image_of(q.bound.cache, allocation, static_cast<std::int64_t>(bytes.size()), blocks, q.content),
                          bytes, listed, q.threads);
  kernels::Difference out;
  for (const Plane& plane : q.bound.cache.planes) {
    if (plane.allocation != allocation || blocks.empty()) continue;
    const auto more =
        kernels::check(bytes, plane, blocks, q.content.key, unblocked_generation(q.content), listed, q.threads);
    out.wrong_bytes += more.wrong_bytes;
    out.first.insert(out.first.end(), more.first.begin(), more.first.end());
  }
  std::sort(out.first.begin(), out.first.end());
  return out;
}

/// Elements of either half of a byte.
std::vector<layout::Element> elements_at(const layout::Cache& cache, int allocation, std::int64_t byte) {
  auto out = layout::inverse(cache, allocation, byte * 8);
  for (auto& element : layout::inverse(cache, allocation, byte * 8 + 4))
    if (std::find(out.begin(), out.end(), element) == out.end()) out.push_back(std::move(element));
  return out;
}

/// One past the last byte, from `byte` on without a gap, that belongs to the element's row.
std::int64_t end_of_row(const Plane& plane, const layout::Coord& at, std::int64_t byte) {
  layout::Box row = layout::domain(plane);
  for (const Axis axis : layout::all_axes)
    if (axis != Axis::channel) row.lo[axis] = at[axis], row.hi[axis] = at[axis] + 1;
  for (const layout::Run& run : layout::runs(plane, row))
    if (run.bit <= byte * 8 && byte * 8 < run.bit + run.bits) return (run.bit + run.bits) / 8;
  return byte + 1;
}

/// Where there are too many places to list.
void add_wrong_blocks(const Question& q, const std::vector<BlockContent>& blocks, Damage& out) {
  std::set<std::int64_t> right;
  for (const BlockContent& b : blocks) {
    const bool is = std::ranges::all_of(q.bound.cache.planes, [&](const Plane& plane) {
      const auto bytes = q.bound.ranges[static_cast<std::size_t>(plane.allocation)].bytes;
      return kernels::check(bytes, plane, {&b, 1}, q.content.key, unblocked_generation(q.content), 0).wrong_bytes == 0;
    });
    if (is) right.insert(b.block);
  }
  for (std::int64_t b = 0; b < q.subject.geometry.blocks; ++b)
    if (!right.contains(b)) out.blocks.insert(b);
}

}  // namespace

Damage damage_of(const Question& q, const std::vector<BlockContent>& blocks) {
  Damage out;
  bool complete = true;
  for (std::size_t a = 0; a < q.bound.ranges.size(); ++a) {
    const int allocation = static_cast<int>(a);
    const auto bytes = q.bound.ranges[a].bytes;
    const kernels::Difference difference = check(q, allocation, blocks);
    std::int64_t here = difference.wrong_bytes;
    if (here == 0) continue;
    if (q.content.poison && q.open_tails) {
      for (const auto& tail : tails(q, q.bound.cache, allocation)) {
        const auto open =
            bytes.subspan(static_cast<std::size_t>(tail.begin), static_cast<std::size_t>(tail.end - tail.begin));
        here -= kernels::check_poison(poison_of(q.content, allocation), tail.begin, open, 0).wrong_bytes;
      }
    }
    if (here == 0) continue;
    out.bytes += here;
    complete = complete && difference.wrong_bytes == static_cast<std::int64_t>(difference.first.size());
    std::int64_t next = 0;
    for (const std::int64_t offset : difference.first) {
      if (offset < next) continue;  // of a row that is known
      if (!complete && out.first.size() == shown) break;
      auto elements = elements_at(q.bound.cache, allocation, offset);
      if (elements.empty()) {
        next = offset + 64;
      } else {
        const layout::Element& element = elements.front();
        const Plane& plane = q.bound.cache.planes[static_cast<std::size_t>(element.plane)];
        if (elements.size() == 1) next = end_of_row(plane, element.coord, offset);
        if (open_tail(q, element.coord)) continue;
        for (const auto& one : elements)
          if (has_axis(q.bound.cache.planes[static_cast<std::size_t>(one.plane)], Axis::block))
            out.blocks.insert(one.coord[Axis::block]);
      }
      if (out.first.size() == shown) continue;
      const auto same_row = [&](const layout::Coord& x, const layout::Coord& y) {
        return std::ranges::all_of(layout::all_axes, [&](Axis axis) { return axis == Axis::channel || x[axis] == y[axis]; });
      };
      if (!out.first.empty() && !elements.empty() && !out.first.back().elements.empty() &&
          same_row(out.first.back().elements.front().coord, elements.front().coord))
        continue;  // neighbours within a row add nothing
      out.first.push_back({allocation, offset, std::move(elements)});
    }
  }
  if (!complete) add_wrong_blocks(q, blocks, out);
  return out;
}

bool open_tail(const Question& q, const layout::Coord& at) {
  if (!q.open_tails) return false;
  for (const Request& r : q.content.requests) {
    if (r.tokens < 0) continue;
    const auto i = std::find(r.blocks.begin(), r.blocks.end(), at[Axis::block]) - r.blocks.begin();
    if (i < static_cast<std::ptrdiff_t>(r.blocks.size()))
      return i * q.subject.geometry.block_size + at[Axis::slot] >= r.tokens;
  }
  return false;
}

std::vector<layout::ByteRange> tails(const Question& q, const layout::Cache& cache, int allocation) {
  std::vector<layout::ByteRange> out;
  const std::int64_t size = q.subject.geometry.block_size;
  for (const Request& request : q.content.requests) {
    if (request.tokens < 0) continue;
    for (std::size_t i = 0; i < request.blocks.size(); ++i) {
      const std::int64_t used = std::clamp<std::int64_t>(request.tokens - static_cast<std::int64_t>(i) * size, 0, size);
      if (used == size) continue;
      for (const Plane& plane : cache.planes) {
        if (plane.allocation != allocation) continue;
        layout::Box box = layout::domain(plane);
        if (box.lo[Axis::block] > request.blocks[i] || box.hi[Axis::block] <= request.blocks[i] ||
            box.hi[Axis::slot] <= used)
          continue;
        box.lo[Axis::block] = request.blocks[i], box.hi[Axis::block] = request.blocks[i] + 1;
        box.lo[Axis::slot] = std::max(box.lo[Axis::slot], used);
        for (const layout::Run& run : layout::runs(plane, box)) {
          const std::int64_t begin = (run.bit + 7) / 8, end = (run.bit + run.bits) / 8;
          if (begin < end) out.push_back({begin, end});
        }
      }
    }
  }
  return out;
}

std::optional<std::uint8_t> expected(const Question& q, const std::vector<BlockContent>& blocks, int allocation,
                                     std::int64_t byte) {
  const layout::Cache& cache = q.bound.cache;
  std::optional<std::uint8_t> out;
  if (q.content.poison) out = kernels::poison_byte(poison_of(q.content, allocation), byte);
  for (const auto& element : elements_at(cache, allocation, byte)) {
    const Plane& plane = cache.planes[static_cast<std::size_t>(element.plane)];
    const auto& at = element.coord;
    kernels::RowId row{plane.component, at[Axis::kv], at[Axis::layer], at[Axis::head], 0, unblocked_generation(q.content)};
    if (has_axis(plane, Axis::block) || has_axis(plane, Axis::slot)) {
      const auto owner = std::ranges::find_if(blocks, [&](const auto& b) {
        return b.block == at[Axis::block] && at[Axis::slot] >= b.first_slot && at[Axis::slot] < b.first_slot + b.tokens;
      });
      if (owner == blocks.end()) {
        if (open_tail(q, at)) return std::nullopt;
        continue;
      }
      row.token = owner->first_token + at[Axis::slot] - owner->first_slot;
      row.generation = owner->generation;
    }
    const std::uint32_t code = kernels::tag_code(kernels::row_key(q.content.key, row), row, plane.dtype, at[Axis::channel]);
    const auto place = layout::locate(plane, at);
    if (layout::bits(plane.dtype) == 4) {
      const auto shift = static_cast<unsigned>(place->bit % 8);
      out = static_cast<std::uint8_t>((out.value_or(0) & ~(0xFu << shift)) | code << shift);
    } else {
      out = static_cast<std::uint8_t>(code >> (byte * 8 - place->bit));
    }
  }
  return out;
}

}  // namespace kvcts::probe
