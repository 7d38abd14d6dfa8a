// tag/1: the value of every element as a function of its coordinates.
//
// CONTRACT (version 1; golden files contain it: its speed may change, its value never).
// All arithmetic is unsigned and wraps; u64 unless said otherwise.
//
//   mix(z): z ^= z >> 30; z *= 0xbf58476d1ce4e5b9; z ^= z >> 27; z *= 0x94d049bb133111eb; z ^= z >> 31          (splitmix64)
//
//   base = mix( mix( mix(seed + 0x9e3779b97f4a7c15 * (pass + 1))
//                    ^ (component | (kv << 4) | (layer << 8) | (origin << 32)) )  +  generation )
//   row  = mix( base ^ (head + (token << 20)) )                 head < 2^20, token < 2^44, layer < 2^24, kv < 16
//   word(row, i) (u32; i taken mod 2^32), i = 0, 1, ...:
//     x = lo32(row) + i * 0x9e3779b9;  x ^= x >> 16;  x *= 0x21f0aaad;  x ^= x >> 15;
//     x += hi32(row);  x *= 0x735a2d97;  x ^= x >> 15
//
// Channel c of a dtype of w bits takes bits [c*w mod 32, +w) of word(row, c*w div 32), bit 0 the least significant: a run of
// channels is a run of little-endian words, so the inner loop works on 32-bit lanes whatever the dtype. The bits h become a
// code:
//
//   code = (h & AND) | OR
//     fp32, fp16, bf16, the four fp8, e8m0:  OR = 3, AND clears bit w-2
//     int8, uint8:                           OR = 3, AND = all ones
//     int4, e2m1:                            OR = 1, AND = all ones (no room for more)
//   scale and global_scale components only (never data), whatever the dtype: bits 2..3 of the code are then replaced by
//     (channel + token + head + layer + 2*kv) mod 4, so that a scale differs in its bits from each neighbour on every axis.
//
// It follows that floats are never 0, NaN, Inf or a power of two (bit w-2 is the top exponent bit, so |x| < 2; two mantissa
// bits are set, so subnormals are no powers of two either), hence no scale is 1.0. Every e8m0 code is a power of two; a
// clear bit 6 excludes 1.0 (0x7f) and NaN (0xff). uint8 and int8 are never 0 or a power of two (int8 may be -1). int4 is
// never 0, e2m1 never 0, 1.0, 2.0 or 4.0.
//
// Poison (poison.hpp) clears bits 0 and 4 of every byte, so bit 0 of every code of every dtype separates tag from poison.
//
// Fields: `component` as in layout.hpp (0 data, 1 scale, 2 global scale); `kv` 0 K, 1 V; `layer`, `head` in the model, not
// the rank; `token` the position in its request; `generation` which request (or rewrite) wrote it; `channel` as in the
// coordinate (scale groups in scale planes); `origin` 0 in ordinary passes (correct replicas are equal), rank + 1 in the
// provenance pass. Planes without block and slot axes use token 0; an axis without modes has its origin's coordinate (head 0
// where there is no head).
#pragma once

#include <cstdint>
#include <span>

#include "layout/dtype.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels {

inline constexpr int tag_version = 1;

/// One pass: everything that is constant over a cache.
struct TagKey {
  std::uint64_t seed{1};
  std::uint32_t pass{0};
  std::uint32_t origin{0};
  bool operator==(const TagKey&) const = default;
};

/// Identifies a row of channels.
struct RowId {
  layout::Component component{};
  std::int64_t kv{0}, layer{0}, head{0}, token{0};
  std::uint32_t generation{0};
  bool operator==(const RowId&) const = default;
};

/// Throws layout::Error when a field is outside the contract's range.
std::uint64_t row_key(const TagKey& key, const RowId& row);
/// One code, right-aligned. The scale rule needs `row` besides its key.
std::uint32_t tag_code(std::uint64_t row_key, const RowId& row, layout::Dtype dtype, std::int64_t channel);
/// Codes of channels [first, first + count) packed contiguously, low nibble first, little endian. first * bits must be a
/// multiple of 8. `out` has ceil(count * bits / 8) bytes; a last lone nibble leaves the high nibble 0. Throws layout::Error
/// when one of these does not hold.
void tag_row(std::uint64_t row_key, const RowId& row, layout::Dtype dtype, std::int64_t first, std::int64_t count,
             std::span<std::uint8_t> out);

/// Free bits of one code: what a single element contributes against collisions in one pass. Scales have two fewer.
int entropy_bits(layout::Dtype dtype, layout::Component component = layout::Component::data);
/// Passes after which the smallest unit of `unit_elements` codes collides with p <= 2^-64: ceil(64 / (elements * entropy)).
int deciding_passes(layout::Dtype dtype, std::int64_t unit_elements, layout::Component component = layout::Component::data);

}  // namespace kvcts::kernels
