#include "python/probe/verify.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "case/text.hpp"
#include "kernels/poison.hpp"
#include "python/probe/damage.hpp"
#include "python/probe/facts.hpp"
#include "python/probe/search.hpp"

namespace kvcts::probe {

using layout::Axis;

namespace {

constexpr std::size_t drawn = 4096;  ///< blocks; wrong ones beyond are added

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
  for (const Stretch& stretch : q.bound.stretches) out.checked_bytes += static_cast<std::int64_t>(stretch.bytes.size());
  const Damage damage = damage_of(q, blocks);
  out.wrong_bytes = damage.bytes;
  for (const auto& b : blocks) {
    const bool right = !damage.blocks.contains(b.block);
    if (out.blocks.size() < (right ? drawn : 2 * drawn))
      out.blocks.push_back({b.block, b.first_token, b.tokens, b.generation, right});
  }
  if (out.wrong_bytes == 0) return out;

  Rows rows(q);
  std::set<std::int64_t> tokens;
  for (const auto& b : blocks) {
    if (tokens.size() < 64) tokens.insert(b.first_token);
  }
  for (const Damage::Place& place : damage.first) {
    for (const auto& b : blocks) {
      if (place.elements.empty() || b.block != place.elements.front().coord[Axis::block]) continue;
      for (std::int64_t t = b.first_token; t < b.first_token + std::min<std::int64_t>(b.tokens, 64); ++t) tokens.insert(t);
    }
  }
  for (const Damage::Place& place : damage.first) {
    if (place.elements.empty()) continue;
    layout::Coord row = place.elements.front().coord;
    row[Axis::channel] = 0;
    rows.want(row);
  }
  rows.know_axes(tokens);
  for (const Damage::Place& place : damage.first) {
    const auto bytes = q.bound.stretches[static_cast<std::size_t>(place.allocation)].bytes;
    const auto n = std::min<std::size_t>(8, bytes.size() - static_cast<std::size_t>(place.offset));
    const auto seen = bytes.subspan(static_cast<std::size_t>(place.offset), n);
    const layout::Element* element = place.elements.empty() ? nullptr : &place.elements.front();
    Wrong one;
    one.allocation = q.subject.cache.allocations[static_cast<std::size_t>(place.allocation)].name;
    one.offset = q.bound.stretches[static_cast<std::size_t>(place.allocation)].begin + place.offset;
    std::vector<std::uint8_t> expected;
    for (std::size_t i = 0; i < n; ++i)
      expected.push_back(
          predicted(q, q.bound.cache, blocks, place.allocation, place.offset + static_cast<std::int64_t>(i)).value_or(0));
    one.expected = text::hex(expected);
    one.found = text::hex(seen);
    one.where = element ? where(q, blocks, q.bound.cache.planes[static_cast<std::size_t>(element->plane)], element->coord)
                        : "padding";
    one.is = who_is_there(q, rows, place.allocation, place.offset, seen, element);
    out.first.push_back(std::move(one));
  }
  out.diagnosis = Search(q, damage).run();
  out.what_happened = what_happened(q, damage);
  if (!out.diagnosis.exact && !out.what_happened.empty())
    out.diagnosis.text.insert(not_identified.size(), "; what happened: " + in_a_line(out.what_happened));
  return out;
}

}  // namespace kvcts::probe
