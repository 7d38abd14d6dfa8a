// Other ways to read the same bytes: how a plane looks to code that misreads it.
#pragma once

#include <string>
#include <vector>

#include "case/outcome.hpp"
#include "layout/layout.hpp"

namespace kvcts::scenario {

struct Variant {
  FaultClass fault_class{};
  std::string words;  ///< "K B N H C taken for B K N H C"
  layout::Cache cache;
};

/// A reading that leaves the allocation counts as a reading; one that overflows does not.
bool fits(const layout::Cache& cache);

/// Axes of the data planes in another order, still packed. `far` false: two axes exchanged, or one moved; true: every other
/// order. `scales`: each also with the scales in that order.
std::vector<Variant> permuted(const layout::Cache& cache, bool far, bool scales = false);
/// The names of two axes exchanged: extents and strides stay in place, so the code also counts wrongly.
std::vector<Variant> renamed(const layout::Cache& cache);
/// Blocks of k times as many (or k times fewer) tokens over the same bytes.
std::vector<Variant> reblocked(const layout::Cache& cache);
/// One stride of one axis: packed, padded, doubled, halved, in elements, `others` (strides seen elsewhere, bits).
std::vector<Variant> restrided(const layout::Cache& cache, const std::vector<std::int64_t>& others);
/// Scales in another place or order; data untouched.
std::vector<Variant> rescaled(const layout::Cache& cache);
/// More or fewer heads, or a narrower row, over the same bytes.
std::vector<Variant> resized(const layout::Cache& cache);
/// Rows of another width (4-bit codes counted as bytes, scales inside the rows omitted, head_dim rounded up to a tile);
/// every stride outside a row follows.
std::vector<Variant> repitched(const layout::Cache& cache);
/// Scales inside the data's allocation, after each row instead of after all rows of a block, or the reverse; the data moves
/// with them.
std::vector<Variant> relaid(const layout::Cache& cache);
/// Two adjacent parts of a row or block, swapped.
std::vector<Variant> exchanged_parts(const layout::Cache& cache);
/// Scales in another order that kernels use: linear, interleaved over four slots, groups before slots.
std::vector<Variant> swizzled(const layout::Cache& cache);
/// Codes read as another dtype of the same width, or two 4-bit codes swapped.
std::vector<Variant> recoded(const layout::Cache& cache);

/// K and V planes that differ only in their start, as one plane with a kv mode.
layout::Cache merged(const layout::Cache& cache);
/// Bits that the channels of a row span in a plane.
std::int64_t row_bits(const layout::Plane& plane);
/// "K B N H C" by descending stride.
std::string order_text(const layout::Plane& plane);

}  // namespace kvcts::scenario
