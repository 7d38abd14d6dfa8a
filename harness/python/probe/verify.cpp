#include "python/probe/verify.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "case/text.hpp"
#include "kernels/poison.hpp"
#include "python/probe/facts.hpp"
#include "python/probe/search.hpp"

namespace kvcts::probe {

using layout::Axis;

namespace {

constexpr std::size_t shown = 8;         ///< rows
constexpr std::size_t looked_at = 4096;  ///< bytes, for the first wrong rows among them
constexpr std::size_t drawn = 4096;

std::string where(const Question& q, const std::vector<kernels::BlockContent>& blocks, const layout::Plane& plane,
                  const layout::Coord& at) {
  std::string text = plane.component == layout::Component::data ? "" : std::string(layout::name(plane.component)) + " ";
  text += fmt::format("{} layer {}", at[Axis::kv] == 0 ? "K" : "V", at[Axis::layer]);
  if (has_axis(plane, Axis::block)) text += fmt::format(" block {} slot {}", at[Axis::block], at[Axis::slot]);
  text += fmt::format(" head {} channel {}", at[Axis::head], at[Axis::channel]);
  if (!has_axis(plane, Axis::block)) return text;
  const bool used = std::any_of(blocks.begin(), blocks.end(), [&](const auto& b) {
    return b.block == at[Axis::block] && at[Axis::slot] >= b.first_slot && at[Axis::slot] < b.first_slot + b.tokens;
  });
  return used ? text : text + (q.content.poison ? " (unowned slot)" : "");
}

// The expected value of eight bytes: an image would need the whole plane, so it is computed element by element.
std::vector<std::uint8_t> expected(const Question& q, const std::vector<kernels::BlockContent>& blocks, int allocation,
                                   std::int64_t offset, std::size_t n) {
  std::vector<std::uint8_t> out(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t byte = offset + static_cast<std::int64_t>(i);
    if (q.content.poison) out[i] = kernels::poison_byte(poison_of(q.content, allocation), byte);
    for (const int half : {0, 4}) {
      for (const auto& element : layout::inverse(q.bound.cache, allocation, byte * 8 + half)) {
        const layout::Plane& plane = q.bound.cache.planes[static_cast<std::size_t>(element.plane)];
        const auto& at = element.coord;
        kernels::RowId row{
            plane.component, at[Axis::kv], at[Axis::layer], at[Axis::head], 0, unblocked_generation(q.content)};
        if (has_axis(plane, Axis::block) || has_axis(plane, Axis::slot)) {
          const auto owner = std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) {
            return b.block == at[Axis::block] && at[Axis::slot] >= b.first_slot && at[Axis::slot] < b.first_slot + b.tokens;
          });
          if (owner == blocks.end()) continue;
          row.token = owner->first_token + at[Axis::slot] - owner->first_slot;
          row.generation = owner->generation;
        }
        const std::uint32_t code =
            kernels::tag_code(kernels::row_key(q.content.key, row), row, plane.dtype, at[Axis::channel]);
        const auto place = layout::locate(plane, at);
        if (layout::bits(plane.dtype) == 4) {
          const auto shift = static_cast<unsigned>(place->bit % 8);
          out[i] = static_cast<std::uint8_t>((out[i] & ~(0xFu << shift)) | code << shift);
        } else {
          out[i] = static_cast<std::uint8_t>(code >> (byte * 8 - place->bit));
        }
      }
    }
  }
  return out;
}

std::string who_is_there(const Question& q, const Rows& rows, int allocation, std::int64_t offset,
                         std::span<const std::uint8_t> seen, const layout::Element* element) {
  if (element) {
    layout::Coord row = element->coord;
    row[Axis::channel] = 0;
    if (const auto name = rows.at(row)) return words(*name);
  }
  if (seen.size() < 4) return "";
  for (const Side side : {Side::producer, Side::consumer}) {
    Content other = q.content;
    other.poison = side;
    const std::uint64_t key = poison_of(other, allocation);
    bool all = true;
    for (std::size_t i = 0; i < seen.size(); ++i)
      all = all && seen[i] == kernels::poison_byte(key, offset + static_cast<std::int64_t>(i));
    if (!all) continue;
    return q.content.poison == side ? "what was there before: nothing was written"
           : side == Side::producer ? "the producer's poison, of the same place"
                                    : "the consumer's poison, of the same place";
  }
  if (std::all_of(seen.begin(), seen.end(), [&](std::uint8_t b) { return b == seen[0]; }))
    return fmt::format("0x{:02x} again and again", seen[0]);
  return "";
}

}  // namespace

Report verify(const Question& q) {
  Report out;
  const auto blocks = blocks_of(q.content.requests, q.subject.geometry);
  const bool any_tail = q.open_tails && std::any_of(q.content.requests.begin(), q.content.requests.end(),
                                                    [](const Request& r) { return r.tokens >= 0; });
  std::vector<int> wrong;
  std::vector<std::pair<int, std::int64_t>> places;
  for (std::size_t a = 0; a < q.bound.stretches.size(); ++a) {
    const auto bytes = q.bound.stretches[a].bytes;
    const int allocation = static_cast<int>(a);
    out.checked_bytes += static_cast<std::int64_t>(bytes.size());
    // One pass first. Only if it finds something, tails are considered.
    kernels::Difference difference;
    if (q.content.poison) {
      difference =
          kernels::check(image_of(q.bound.cache, allocation, static_cast<std::int64_t>(bytes.size()), blocks, q.content),
                         bytes, looked_at, q.threads);
    } else {
      for (const layout::Plane& plane : q.bound.cache.planes) {
        if (plane.allocation != allocation || blocks.empty()) continue;
        const auto more =
            kernels::check(bytes, plane, blocks, q.content.key, unblocked_generation(q.content), looked_at, q.threads);
        difference.wrong_bytes += more.wrong_bytes;
        difference.first.insert(difference.first.end(), more.first.begin(), more.first.end());
      }
      std::sort(difference.first.begin(), difference.first.end());
    }
    if (difference.wrong_bytes == 0) continue;
    const std::int64_t here =
        any_tail ? Search::wrong_bytes(q, q.bound.cache, blocks, {allocation}) : difference.wrong_bytes;
    if (here == 0) continue;
    out.wrong_bytes += here;
    wrong.push_back(allocation);
    for (const std::int64_t at : difference.first) places.emplace_back(allocation, at);
  }
  if (out.wrong_bytes == 0) {
    for (const auto& b : blocks) {
      if (out.blocks.size() < drawn) out.blocks.push_back({b.block, b.first_token, b.tokens, b.generation, true});
    }
    return out;
  }

  // By row: neighbours within a row add nothing.
  Rows rows(q);
  struct Place {
    int allocation;
    std::int64_t offset;
    std::vector<layout::Element> elements;
  };
  std::vector<Place> firsts;
  std::set<std::int64_t> tokens;
  const auto open_tail = [&](const layout::Coord& at) {
    if (!any_tail) return false;
    for (const Request& r : q.content.requests) {
      const auto i = std::find(r.blocks.begin(), r.blocks.end(), at[Axis::block]) - r.blocks.begin();
      if (i < static_cast<std::ptrdiff_t>(r.blocks.size()))
        return r.tokens >= 0 && i * q.subject.geometry.block_size + at[Axis::slot] >= r.tokens;
    }
    return false;
  };
  for (const auto& [allocation, offset] : places) {
    auto elements = layout::inverse(q.bound.cache, allocation, offset * 8);
    if (!elements.empty() && open_tail(elements.front().coord)) continue;
    const auto same_row = [&](const layout::Coord& a, const layout::Coord& b) {
      return std::all_of(layout::all_axes.begin(), layout::all_axes.end(),
                         [&](Axis x) { return x == Axis::channel || a[x] == b[x]; });
    };
    if (!firsts.empty() && !elements.empty() && !firsts.back().elements.empty() &&
        same_row(firsts.back().elements.front().coord, elements.front().coord))
      continue;
    if (!firsts.empty() && elements.empty() && firsts.back().elements.empty() && offset - firsts.back().offset < 64)
      continue;
    firsts.push_back({allocation, offset, std::move(elements)});
    if (firsts.size() == shown) break;
  }
  for (const auto& b : blocks) {
    if (tokens.size() < 64) tokens.insert(b.first_token);
  }
  for (const Place& place : firsts) {
    for (const auto& b : blocks) {
      if (place.elements.empty() || b.block != place.elements.front().coord[Axis::block]) continue;
      for (std::int64_t t = b.first_token; t < b.first_token + std::min<std::int64_t>(b.tokens, 64); ++t) tokens.insert(t);
    }
  }
  rows.know_axes(tokens);
  for (const Place& place : firsts) {
    const auto bytes = q.bound.stretches[static_cast<std::size_t>(place.allocation)].bytes;
    const auto n = std::min<std::size_t>(8, bytes.size() - static_cast<std::size_t>(place.offset));
    const auto seen = bytes.subspan(static_cast<std::size_t>(place.offset), n);
    const layout::Element* element = place.elements.empty() ? nullptr : &place.elements.front();
    Wrong one;
    one.allocation = q.subject.cache.allocations[static_cast<std::size_t>(place.allocation)].name;
    one.offset = q.bound.stretches[static_cast<std::size_t>(place.allocation)].begin + place.offset;
    one.expected = text::hex(expected(q, blocks, place.allocation, place.offset, n));
    one.found = text::hex(seen);
    one.where = element ? where(q, blocks, q.bound.cache.planes[static_cast<std::size_t>(element->plane)], element->coord)
                        : "padding";
    one.is = who_is_there(q, rows, place.allocation, place.offset, seen, element);
    out.first.push_back(std::move(one));
  }
  for (const auto& b : blocks) {
    if (out.blocks.size() == drawn) break;
    BlockState state{b.block, b.first_token, b.tokens, b.generation, true};
    for (const layout::Plane& plane : q.bound.cache.planes) {
      const auto bytes = q.bound.stretches[static_cast<std::size_t>(plane.allocation)].bytes;
      state.right =
          state.right &&
          kernels::check(bytes, plane, {&b, 1}, q.content.key, unblocked_generation(q.content), 0).wrong_bytes == 0;
    }
    out.blocks.push_back(state);
  }
  out.diagnosis = Search(q, wrong, out.wrong_bytes).run();
  out.what_happened = what_happened(q);
  if (!out.diagnosis.exact && !out.what_happened.empty())
    out.diagnosis.text.insert(not_identified.size(), "; what happened: " + in_a_line(out.what_happened));
  return out;
}

}  // namespace kvcts::probe
