#include "python/probe/verify.hpp"

#include <algorithm>

#include "case/text.hpp"
#include "python/probe/asked.hpp"
#include "python/probe/damage.hpp"

namespace kvcts::probe {

namespace {

constexpr std::size_t drawn = 4096;  ///< blocks; wrong ones beyond are added

}  // namespace

Report verify(const Question& q) {
  Report out;
  const auto blocks = blocks_of(q.content.requests, q.subject.geometry);
  for (const TensorRange& range : q.bound.ranges) out.checked_bytes += static_cast<std::int64_t>(range.bytes.size());
  const Damage damage = damage_of(q, blocks);
  out.wrong_bytes = damage.bytes;
  for (const auto& b : blocks) {
    const bool right = !damage.blocks.contains(b.block);
    if (out.blocks.size() < (right ? drawn : 2 * drawn))
      out.blocks.push_back({b.block, b.first_token, b.tokens, b.generation, right});
  }
  if (out.wrong_bytes == 0) return out;

  const Asked asked(q, damage.bytes);
  for (const Damage::Place& place : damage.first) {
    const auto bytes = q.bound.ranges[static_cast<std::size_t>(place.allocation)].bytes;
    const auto n = std::min<std::size_t>(8, bytes.size() - static_cast<std::size_t>(place.offset));
    const auto seen = bytes.subspan(static_cast<std::size_t>(place.offset), n);
    Wrong one;
    one.allocation = q.subject.cache.allocations[static_cast<std::size_t>(place.allocation)].name;
    one.offset = q.bound.ranges[static_cast<std::size_t>(place.allocation)].begin + place.offset;
    std::vector<std::uint8_t> right;
    for (std::size_t i = 0; i < n; ++i)
      right.push_back(expected(q, blocks, place.allocation, place.offset + static_cast<std::int64_t>(i)).value_or(0));
    one.expected = text::hex(right);
    one.found = text::hex(seen);
    one.where = asked.where(place.allocation, place.offset);
    one.is = asked.provenance(place.allocation, place.offset);
    out.first.push_back(std::move(one));
  }
  out.diagnosis = asked.diagnosis();
  out.what_happened = asked.what_happened();
  if (!out.diagnosis.exact && !out.what_happened.empty())
    out.diagnosis.text.insert(not_identified.size(), "; what happened: " + in_a_line(out.what_happened));
  return out;
}

}  // namespace kvcts::probe
