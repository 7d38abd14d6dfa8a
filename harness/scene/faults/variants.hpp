// Other ways to read the same bytes: what a plane looks like to somebody who takes it for something else.
#pragma once

#include <string>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts::script {

struct Variant {
  std::string fault_class;
  std::string words;  ///< "K B N H C taken for B K N H C"
  layout::Cache cache;
};

/// A reading that leaves the allocation is still a reading; one that overflows is not.
bool fits(const layout::Cache& cache);

/// Axes of the data planes in another order, packed as before. `far` false: two axes exchanged, or one moved; true: every
/// other order. `scales`: and each once more, with the scales in that order, too.
std::vector<Variant> permuted(const layout::Cache& cache, bool far, bool scales = false);
/// The names of two axes exchanged: their extents and strides go with the place, so the code also counts wrongly.
std::vector<Variant> renamed(const layout::Cache& cache);
/// Blocks of k times as many (or k times fewer) tokens over the same bytes.
std::vector<Variant> reblocked(const layout::Cache& cache);
/// One stride of one axis: packed, padded, doubled, halved, in elements, `others` (strides seen elsewhere, bits).
std::vector<Variant> restrided(const layout::Cache& cache, const std::vector<std::int64_t>& others);
/// Scales elsewhere, or in another order; data untouched.
std::vector<Variant> rescaled(const layout::Cache& cache);
/// More or fewer heads, or a narrower row, over the same bytes.
std::vector<Variant> resized(const layout::Cache& cache);
/// Rows of another width (codes of 4 bits counted as bytes, scales inside of the rows left out, head_dim rounded up to a
/// tile): every stride outside of a row follows.
std::vector<Variant> repitched(const layout::Cache& cache);
/// Scales inside of the data's allocation, behind each row instead of behind all rows of a block, or the reverse: data moves
/// with them.
std::vector<Variant> relaid(const layout::Cache& cache);
/// Two parts that lie behind one another, in a row or a block, in the other order.
std::vector<Variant> exchanged_parts(const layout::Cache& cache);
/// Scales in another one of the orders that kernels have: linear, interleaved over four slots, groups before slots.
std::vector<Variant> swizzled(const layout::Cache& cache);
/// Codes taken for those of another dtype of the same width, or two of 4 bits in the other order.
std::vector<Variant> recoded(const layout::Cache& cache);

/// Planes of K and V that differ in nothing but their begin, as one plane with a kv mode.
layout::Cache merged(const layout::Cache& cache);
/// "K B N H C" by descending stride.
std::string order_words(const layout::Plane& plane);

}  // namespace kvcts::script
