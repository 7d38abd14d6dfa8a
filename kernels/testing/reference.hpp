// For tests: tag/1, poison and the map again, from the contract comments alone, one element and one bit at a time. Shares
// only the value types with the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/generate.hpp"
#include "kernels/tag.hpp"

namespace kvcts::kernels::reference {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using layout::Dtype;

inline u64 splitmix(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

inline u64 row(const TagKey& key, const RowId& id) {
  u64 state = splitmix(key.seed + 0x9e3779b97f4a7c15ull * (u64{key.pass} + 1));
  state ^= static_cast<u64>(id.component) | u64(id.kv) << 4 | u64(id.layer) << 8 | u64{key.origin} << 32;
  state = splitmix(splitmix(state) + id.generation);
  return splitmix(state ^ (u64(id.head) + (u64(id.token) << 20)));
}

inline u32 stream(u64 row, u32 i) {
  const u32 low = u32(row), high = u32(row >> 32);
  u32 x = low + i * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x21f0aaadu;
  x = (x ^ (x >> 15)) + high;
  x = x * 0x735a2d97u;
  return x ^ (x >> 15);
}

inline int width(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return 32;
    case Dtype::fp16:
    case Dtype::bf16:
      return 16;
    case Dtype::int4:
    case Dtype::e2m1:
      return 4;
    default:
      return 8;
  }
}

inline bool is_integer(Dtype dtype) { return dtype == Dtype::int8 || dtype == Dtype::uint8 || dtype == Dtype::int4; }

inline u32 code(u64 row, const RowId& id, Dtype dtype, std::int64_t channel) {
  const int w = width(dtype);
  u32 out = 0;
  for (int b = 0; b < w; ++b) {
    const u64 bit = u64(channel) * u64(w) + u64(b);
    out |= ((stream(row, u32(bit / 32)) >> (bit % 32)) & 1u) << b;
  }
  if (w > 4 && !is_integer(dtype)) out &= ~(1u << (w - 2));
  out |= w > 4 ? 3u : 1u;
  if (id.component != layout::Component::data) {
    const u64 digit = (u64(channel) + u64(id.token) + u64(id.head) + u64(id.layer) + 2 * u64(id.kv)) % 4;
    out = (out & ~0xcu) | u32(digit << 2);
  }
  return out;
}

inline std::uint8_t poison(u64 key, u64 offset) {
  const u64 i = offset / 4;
  const u32 w = (stream(splitmix(key + (i >> 32)), u32(i)) & 0xeeeeeeeeu) | 0x22222222u;
  return std::uint8_t(w >> (8 * (offset % 4)));
}

inline const std::vector<Dtype>& dtypes() {
  static const std::vector<Dtype> all{Dtype::fp32,  Dtype::fp16,     Dtype::bf16,     Dtype::e4m3fn,
                                      Dtype::e5m2,  Dtype::e4m3fnuz, Dtype::e5m2fnuz, Dtype::int8,
                                      Dtype::uint8, Dtype::int4,     Dtype::e2m1,     Dtype::e8m0};
  return all;
}

/// What a code means as a number; NaN and infinities unchanged. From the formats' definitions (IEEE 754; OCP FP8 1.0 and MX
/// 1.0; fnuz: Micikevicius et al. variants as in ml_dtypes), by arithmetic, without conversions of the language.
inline double meaning(Dtype dtype, u32 bits) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  struct Format {
    int exponent, mantissa, bias;
  };
  Format f{};
  switch (dtype) {
    case Dtype::uint8:
      return bits;
    case Dtype::int8:
      return bits < 128 ? double(bits) : double(bits) - 256;
    case Dtype::int4:
      return bits < 8 ? double(bits) : double(bits) - 16;
    case Dtype::e8m0:
      return bits == 255 ? nan : std::ldexp(1.0, int(bits) - 127);
    case Dtype::fp32:
      f = {8, 23, 127};
      break;
    case Dtype::bf16:
      f = {8, 7, 127};
      break;
    case Dtype::fp16:
      f = {5, 10, 15};
      break;
    case Dtype::e4m3fn:
      f = {4, 3, 7};
      break;
    case Dtype::e5m2:
      f = {5, 2, 15};
      break;
    case Dtype::e4m3fnuz:
      f = {4, 3, 8};
      break;
    case Dtype::e5m2fnuz:
      f = {5, 2, 16};
      break;
    case Dtype::e2m1:
      f = {2, 1, 1};
      break;
  }
  const u32 m = bits & ((1u << f.mantissa) - 1), e = (bits >> f.mantissa) & ((1u << f.exponent) - 1);
  const bool negative = (bits >> (f.mantissa + f.exponent)) & 1u, top = e == (1u << f.exponent) - 1;
  const double sign = negative ? -1 : 1;
  if (dtype == Dtype::e4m3fnuz || dtype == Dtype::e5m2fnuz) {
    if (bits == 0x80) return nan;
  } else if (dtype == Dtype::e4m3fn) {
    if (top && m == 7) return nan;
  } else if (dtype != Dtype::e2m1 && top) {
    return m ? nan : sign * infinity;
  }
  const double scale = std::ldexp(1.0, -f.mantissa);
  return e == 0 ? sign * std::ldexp(m * scale, 1 - f.bias) : sign * std::ldexp(1 + m * scale, int(e) - f.bias);
}

inline bool power_of_two(double x) {
  int exponent = 0;
  return std::isfinite(x) && std::fabs(std::frexp(x, &exponent)) == 0.5;
}

inline void put_bit(std::span<std::uint8_t> memory, std::int64_t bit, bool value) {
  if (bit < 0 || bit / 8 >= std::int64_t(memory.size())) throw std::out_of_range("reference wrote outside");
  std::uint8_t& byte = memory[std::size_t(bit / 8)];
  const auto mask = std::uint8_t(1u << (bit % 8));
  byte = std::uint8_t(value ? byte | mask : byte & ~mask);
}

/// What generate() must do: every digit of every mode in turn, every element's coordinate and bits from the definition of
/// Mode.
inline void generate(std::span<std::uint8_t> memory, const layout::Plane& plane, std::span<const BlockContent> content,
                     const TagKey& key, u32 unblocked_generation) {
  using layout::Axis;
  bool blocked = false;
  for (const layout::Mode& mode : plane.modes) blocked = blocked || mode.axis == Axis::block || mode.axis == Axis::slot;
  const auto element = [&](const layout::Coord& at, std::int64_t bit, u32 generation, std::int64_t token) {
    const RowId id{plane.component, at[Axis::kv], at[Axis::layer], at[Axis::head], token, generation};
    const u32 c = code(row(key, id), id, plane.dtype, at[Axis::channel]);
    if (plane.high_nibble_first && width(plane.dtype) == 4) bit = bit % 8 == 0 ? bit + 4 : bit - 4;
    for (int b = 0; b < width(plane.dtype); ++b) put_bit(memory, bit + b, (c >> b) & 1u);
  };
  std::vector<std::int64_t> digits(plane.modes.size(), 0);
  for (;;) {
    layout::Coord at = plane.origin;
    std::int64_t bit = plane.offset;
    for (std::size_t m = 0; m < digits.size(); ++m) {
      at[plane.modes[m].axis] += digits[m] * plane.modes[m].step;
      bit += digits[m] * plane.modes[m].stride;
    }
    if (!blocked) element(at, bit, unblocked_generation, 0);
    for (const BlockContent& b : content) {
      const std::int64_t slot = at[Axis::slot];
      if (blocked && b.block == at[Axis::block] && slot >= b.first_slot && slot < b.first_slot + b.tokens) {
        element(at, bit, b.generation, b.first_token + slot - b.first_slot);
      }
    }
    std::size_t m = 0;
    while (m < digits.size() && ++digits[m] == plane.modes[m].extent) digits[m++] = 0;
    if (m == digits.size()) return;
  }
}

}  // namespace kvcts::kernels::reference
