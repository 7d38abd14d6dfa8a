// One layout's codes at another's places, one by one: what the device's relayout is compared with, and how a probe reads
// rows. Memory is an allocation's bytes, as a plane counts them. All throw layout::Error, before a byte is written, when a
// plane leaves its memory or is not sane (layout::validate), or when dtypes, components or coordinates disagree.
#pragma once

#include <cstdint>
#include <span>

#include "layout/layout.hpp"

namespace kvcts::kernels {

/// Writes every coordinate of `from` where `to` has it; other bits of the target keep their value. Both planes must have the
/// same coordinates, and the target one place for each. Source and target must not overlap.
void relayout(std::span<const std::uint8_t> from_bytes, const layout::Plane& from, std::span<std::uint8_t> to_bytes,
              const layout::Plane& to);

/// The part of a pool that is read: one layer's K or V.
struct Part {
  std::int64_t layer{0};
  std::int64_t kv{0};
};

/// The first `tokens` tokens of a request whose blocks are block_table[0], [1], ... -> rows [tokens, heads, channels],
/// packed, low nibble first.
void gather(std::span<const std::uint8_t> pool, const layout::Plane& plane, Part part,
            std::span<const std::int64_t> block_table, std::int64_t tokens, std::span<std::uint8_t> rows);

/// Bytes of `tokens` such rows.
std::int64_t row_bytes(const layout::Plane& plane, std::int64_t tokens);

}  // namespace kvcts::kernels
