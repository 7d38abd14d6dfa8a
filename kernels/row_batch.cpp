#include "kernels/row_batch.hpp"

#include <algorithm>

namespace kvcts::kernels {
namespace {

/// Appends rows `next`: to the last group if they continue at its distance.
void join(std::vector<RowGroup>& groups, const RowGroup& next) {
  if (!groups.empty()) {
    RowGroup& last = groups.back();
    const std::int64_t pitch = next.bit - (last.bit + static_cast<std::int64_t>(last.count - 1) * last.pitch);
    if ((last.count == 1 || last.pitch == pitch) && (next.count == 1 || next.pitch == pitch)) {
      last.pitch = pitch;
      last.count += next.count;
      return;
    }
  }
  groups.push_back(next);
}

}  // namespace

RowPattern::RowPattern(const AxisTable& heads, std::span<const AxisEntry> slots, const RowWriter& writer) {
  const auto row = [&](const AxisEntry& head, const AxisEntry& slot) {
    const auto h = static_cast<std::uint64_t>(head.coord), s = static_cast<std::uint64_t>(slot.coord);
    who.push_back(h + (s << 20));
    join(groups, {who.size() - 1, 1, head.bit + slot.bit, 0});
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
}

void RowBatch::add(const RowPattern& pattern, std::uint64_t base, std::uint64_t token, std::uint32_t digit,
                   std::int64_t bit) {
  const std::size_t before = rows_, n = pattern.rows();
  rows_ += n;
  if (states_.size() < rows_) {
    states_.resize(2 * rows_);
    or_masks_.resize(2 * rows_);
  }
  const std::uint64_t tokens = token << 20;
  for (std::size_t r = 0; r < n; ++r) states_[before + r] = base ^ (pattern.who[r] + tokens);
  const auto& masks = pattern.or_mask[pattern.or_mask[1].empty() ? 0 : digit & 3u];
  std::copy(masks.begin(), masks.end(), or_masks_.begin() + static_cast<std::ptrdiff_t>(before));
  for (const RowGroup& group : pattern.groups)
    join(groups_, {before + group.first, group.count, bit + group.bit, group.pitch});
}

void RowBatch::clear() {
  rows_ = 0;
  groups_.clear();
}

RowKeys RowBatch::keys() {
  low_.resize(states_.size());
  high_.resize(states_.size());
  best_isa().keys(states_.data(), rows_, low_.data(), high_.data());
  return {low_.data(), high_.data(), or_masks_.data(), rows_};
}

}  // namespace kvcts::kernels
