#include "kernels/row_batch.hpp"

namespace kvcts::kernels {
namespace {

/// Maximal rows at equal distances, from the first on.
std::vector<RowGroup> groups_of(const std::vector<std::int64_t>& bits) {
  std::vector<RowGroup> out;
  for (std::size_t r = 0; r < bits.size(); ++r) {
    if (!out.empty()) {
      RowGroup& last = out.back();
      const std::int64_t pitch = bits[r] - bits[r - 1];
      if (last.count == 1 || pitch == last.pitch) {
        last.pitch = pitch;
        ++last.count;
        continue;
      }
    }
    out.push_back({r, 1, 0});
  }
  return out;
}

}  // namespace

RowPattern::RowPattern(const AxisTable& heads, std::span<const AxisEntry> slots, const RowWriter& writer) {
  const auto row = [&](const AxisEntry& head, const AxisEntry& slot) {
    const auto h = static_cast<std::uint64_t>(head.coord), s = static_cast<std::uint64_t>(slot.coord);
    who.push_back(h + (s << 20));
    bit.push_back(head.bit + slot.bit);
    const auto digit = static_cast<std::uint32_t>(h + s);
    for (std::uint32_t d = 0; d < (writer.scale() ? 4u : 1u); ++d) or_mask[d].push_back(writer.or_mask(digit + d));
  };
  std::int64_t slot_pitch = INT64_MAX;
  for (std::size_t s = 1; s < slots.size(); ++s) {
    const std::int64_t distance = slots[s].bit - slots[s - 1].bit;
    slot_pitch = std::min(slot_pitch, distance < 0 ? -distance : distance);
  }
  if (heads.pitch() <= slot_pitch) {
    for (const AxisEntry& slot : slots) {
      for (const AxisEntry& head : heads.entries()) row(head, slot);
    }
  } else {
    for (const AxisEntry& head : heads.entries()) {
      for (const AxisEntry& slot : slots) row(head, slot);
    }
  }
  groups = groups_of(bit);
}

void RowBatch::add(const RowPattern& pattern, std::uint64_t base, std::uint64_t token, std::uint32_t digit, std::int64_t bit) {
  const std::size_t before = states_.size(), n = pattern.rows();
  states_.resize(before + n);
  bits_.resize(before + n);
  const std::uint64_t tokens = token << 20;
  for (std::size_t r = 0; r < n; ++r) states_[before + r] = base ^ (pattern.who[r] + tokens);
  for (std::size_t r = 0; r < n; ++r) bits_[before + r] = bit + pattern.bit[r];
  const auto& masks = pattern.or_mask[pattern.or_mask[1].empty() ? 0 : digit & 3u];
  or_masks_.insert(or_masks_.end(), masks.begin(), masks.end());
  for (const RowGroup& group : pattern.groups) join_last({before + group.first, group.count, group.pitch});
}

void RowBatch::join_last(const RowGroup& next) {
  if (!groups_.empty() && next.first != 0) {
    RowGroup& last = groups_.back();
    const std::int64_t pitch = bits_[next.first] - bits_[next.first - 1];
    if ((last.count == 1 || last.pitch == pitch) && (next.count == 1 || next.pitch == pitch)) {
      last.pitch = pitch;
      last.count += next.count;
      return;
    }
  }
  groups_.push_back(next);
}

void RowBatch::clear() {
  states_.clear();
  bits_.clear();
  or_masks_.clear();
  groups_.clear();
}

RowKeys RowBatch::keys() {
  low_.resize(states_.size());
  high_.resize(states_.size());
  best_isa().keys(states_.data(), states_.size(), low_.data(), high_.data());
  return {low_.data(), high_.data(), or_masks_.data(), states_.size()};
}

}  // namespace kvcts::kernels
