// Copies one layout into another: the same logical coordinates at other places. Moves codes and converts nothing.
//
//   relayout   all of a plane, or of a cache, into one with the same coordinates
//   extract    the coordinates of the target out of a plane that has more: a rank's heads, some layers or blocks
//   scatter    token rows into slots of the pool (what vLLM's reshape_and_cache does)
//   gather     token rows out of the pool by block table (what a decode kernel reads)
//
// Memory is an allocation's bytes, as a plane counts them. Source and target must not overlap. All functions throw
// layout::Error, before writing a byte, when a plane leaves its allocation or is not sane (layout::validate), has two
// coordinates at the same bits of a target, or when dtypes, components or coordinates disagree. `threads`: 1 only the
// caller's, 0 all that this process may use; the bytes are the same for any number.
#pragma once

#include <cstdint>
#include <span>

#include "layout/layout.hpp"

namespace kvcts::kernels::relayout {

/// Writes every coordinate of `from` where `to` has it; target bits outside every coordinate keep their value. The planes
/// must have the same coordinates.
void relayout(std::span<const std::uint8_t> from_bytes, const layout::Plane& from, std::span<std::uint8_t> to_bytes,
              const layout::Plane& to, int threads = 1);

/// The same, but `from` may have more coordinates than `to`.
void extract(std::span<const std::uint8_t> from_bytes, const layout::Plane& from, std::span<std::uint8_t> to_bytes,
             const layout::Plane& to, int threads = 1);

/// All planes of a cache, of all components. `from_bytes`, `to_bytes`: one span per allocation. Each coordinate of the
/// target must be in exactly one plane of the source, and vice versa; planes may be cut differently (K and V in one
/// allocation or in two).
void relayout(const layout::Cache& from, std::span<const std::span<const std::uint8_t>> from_bytes, const layout::Cache& to,
              std::span<const std::span<std::uint8_t>> to_bytes, int threads = 1);

/// The part of a pool that is written or read: one layer's K or V.
struct Part {
  std::int64_t layer{0};
  std::int64_t kv{0};
};

/// Token rows [tokens, heads, channels], packed, low nibble first -> the slots of one layer's K or V. slot_mapping[i] is
/// token i's slot in the pool, block * block_size + slot; -1: not written. `block_size` is the extent of the plane's slot
/// axis. Also throws when a slot is outside the pool or named twice.
void scatter(std::span<const std::uint8_t> rows, std::span<std::uint8_t> pool, const layout::Plane& plane, Part part,
             std::span<const std::int64_t> slot_mapping, int threads = 1);

/// The first `tokens` tokens of a request whose blocks are block_table[0], [1], ... -> rows as above.
void gather(std::span<const std::uint8_t> pool, const layout::Plane& plane, Part part,
            std::span<const std::int64_t> block_table, std::int64_t tokens, std::span<std::uint8_t> rows, int threads = 1);

/// Bytes of `tokens` rows as scatter() reads and gather() writes them.
std::int64_t row_bytes(const layout::Plane& plane, std::int64_t tokens);

/// The composition of a copy between two planes with the same coordinates, for reports.
struct Pieces {
  std::int64_t run_bits{0};  ///< contiguous on both sides
  std::int64_t runs{0};
};
Pieces pieces(const layout::Plane& from, const layout::Plane& to);

}  // namespace kvcts::kernels::relayout
