// Bytes of one layout into another: the same logical coordinates at other places. Data moves as codes, nothing is converted.
//
//   relayout   all of a plane, or of a cache, into one with the same coordinates
//   extract    the coordinates of the target out of a plane that has more: a rank's heads, some layers or blocks
//   scatter    token rows into slots of the pool (what vLLM's reshape_and_cache does)
//   gather     token rows out of the pool by block table (what a decode kernel reads)
//
// Memory is an allocation's bytes, as a plane counts them. Source and target must not overlap. All functions throw
// layout::Error, before a byte is written, when a plane leaves its allocation or is not sane (layout::validate), has two
// coordinates at the same bits of a target, or when dtypes, components or coordinates do not agree. `threads`: 1 the
// caller's only, 0 all that this process may use; the bytes are the same for any number.
#pragma once

#include <cstdint>
#include <span>

#include "layout/layout.hpp"

namespace kvcts::kernels::relayout {

/// Every coordinate of `from` is written to where `to` has it; bits of the target that are no coordinate's stay as they are.
/// The planes must have the same coordinates.
void relayout(std::span<const std::uint8_t> from_bytes, const layout::Plane& from, std::span<std::uint8_t> to_bytes,
              const layout::Plane& to, int threads = 1);

/// The same, but `from` may have more coordinates than `to`.
void extract(std::span<const std::uint8_t> from_bytes, const layout::Plane& from, std::span<std::uint8_t> to_bytes,
             const layout::Plane& to, int threads = 1);

/// All planes of a cache, of all components. `from_bytes`, `to_bytes`: one span for each allocation. Each coordinate of the
/// target must be in exactly one plane of the source, and the other way round; planes may be cut in any other way (K and V
/// in one allocation or in two).
void relayout(const layout::Cache& from, std::span<const std::span<const std::uint8_t>> from_bytes, const layout::Cache& to,
              std::span<const std::span<std::uint8_t>> to_bytes, int threads = 1);

/// What of a pool is written or read: one layer's K or V.
struct Part {
  std::int64_t layer{0};
  std::int64_t kv{0};
};

/// Token rows [tokens, heads, channels], packed, low nibble first -> the slots of one layer's K or V. slot_mapping[i] is
/// token i's slot in the pool, block * block_size + slot; -1: not written. `block_size` is the extent of the plane's slot
/// axis. Throws, beside the above, when a slot is not in the pool or is named twice.
void scatter(std::span<const std::uint8_t> rows, std::span<std::uint8_t> pool, const layout::Plane& plane, Part part,
             std::span<const std::int64_t> slot_mapping, int threads = 1);

/// The first `tokens` tokens of a request whose blocks are block_table[0], [1], ... -> rows as above.
void gather(std::span<const std::uint8_t> pool, const layout::Plane& plane, Part part,
            std::span<const std::int64_t> block_table, std::int64_t tokens, std::span<std::uint8_t> rows, int threads = 1);

/// Bytes of `tokens` rows as scatter() takes and gather() makes them.
std::int64_t row_bytes(const layout::Plane& plane, std::int64_t tokens);

/// What a copy between two planes with the same coordinates consists of, for reports.
struct Pieces {
  std::int64_t run_bits{0};  ///< that follow each other on both sides
  std::int64_t runs{0};
};
Pieces pieces(const layout::Plane& from, const layout::Plane& to);

}  // namespace kvcts::kernels::relayout
