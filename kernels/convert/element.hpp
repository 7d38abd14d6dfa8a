// One element from fp32 to a code and back: the reference of every conversion, on host and device, by integer arithmetic
// only (the machine's rounding mode and flush to zero have no effect).
//
// CONTRACT. Numbers are the bits of an fp32. Every other dtype except e8m0 below 2^-126 widens to fp32 exactly, so fp16 -> X
// and bf16 -> X are decode, then encode: one rounding.
//   rounding    to nearest, ties to even; keeps denormals on both sides; keeps the sign of zero where -0 exists (fnuz and
//               integers: +0). e8m0 has its own mode, see Rounding.
//   overflow    a number whose rounded value is beyond the largest finite one, and infinity:
//                 saturate  the largest finite number with its sign (CUDA's __NV_SATFINITE, the saturating mode of OFP8)
//                 special   infinity, or NaN where there is none (__NV_NOSAT); e2m1, integers: saturate
//   NaN         becomes the canonical NaN without sign: all bits but the sign set (PTX cvt); fnuz: 0x80. e2m1 has no NaN and
//               gets +6 (PTX). int8, uint8, int4: 0 (PTX cvt.rni.sat). Decoding any NaN gives 0x7fffffff.
//   integers    to nearest even, clamped to the range.
//   e8m0        a power of two, 2^(code - 127); 0xff is NaN. Encoding drops the sign (CUDA's __nv_cvt_float_to_e8m0); zero
//               becomes the least scale, 2^-127 (ml_dtypes makes NaN of zero and of negatives).
#pragma once

#include <cstdint>

#include "kernels/convert/format.hpp"
#include "kernels/host_device.hpp"
#include "layout/dtype.hpp"

namespace kvcts::kernels::convert {

/// How to treat numbers beyond the range.
enum class Overflow : std::uint8_t { saturate, special };

/// How a number that is no power of two becomes an e8m0 scale.
enum class Rounding : std::uint8_t {
  down,     ///< OCP MX 1.0, 6.3: floor(log2)
  up,       ///< cudaRoundPosInf, NVIDIA's recipe: nothing saturates under the scale
  nearest,  ///< ml_dtypes: by value, ties (1.5 * 2^n) up
};

inline constexpr std::uint32_t fp32_sign = 0x80000000u;
inline constexpr std::uint32_t fp32_infinity = 0x7f800000u;
inline constexpr std::uint32_t fp32_nan = 0x7fffffffu;

/// value >> shift, rounded to nearest, ties to even. value < 2^30; any shift >= 1.
KVCTS_HD constexpr std::uint32_t shift_to_even(std::uint32_t value, std::uint32_t shift) {
  // Beyond 31 bits everything is less than half of the last place.
  const std::uint32_t by = shift < 31u ? shift : 31u;
  const std::uint32_t odd = (value >> by) & 1u;
  return (value + ((std::uint32_t{1} << (by - 1u)) - 1u) + odd) >> by;
}

/// fp32 bits -> code of a float format, right-aligned. Branch-free, so loops over it vectorise.
KVCTS_HD constexpr std::uint32_t encode_float(const Format& format, std::uint32_t bits, Overflow overflow) {
  const std::uint32_t magnitude = bits & ~fp32_sign;
  const auto source = static_cast<std::int32_t>(magnitude >> 23);
  // Exponent of the source's last place; a denormal has the least exponent and no hidden bit.
  const std::int32_t exponent = source > 0 ? source : 1;
  const std::uint32_t significand = (magnitude & 0x7fffffu) | (source > 0 ? 0x800000u : 0u);
  // Binades above the target's least. A target's code is (binade << mantissa) + significand including the hidden bit: it
  // carries into the exponent, and the number of a binade below the least is a denormal.
  const std::int32_t binade = exponent - 128 + format.bias;
  const std::int32_t above = binade > 0 ? binade : 0;
  const std::int32_t below = binade < 0 ? -binade : 0;
  const std::int32_t shift = 23 - format.mantissa + below;
  const std::uint32_t rounded = shift > 0 ? shift_to_even(significand, static_cast<std::uint32_t>(shift)) : significand;
  std::uint32_t code = (static_cast<std::uint32_t>(above) << format.mantissa) + rounded;
  const bool keeps = overflow == Overflow::saturate || format.specials == Specials::none;
  const bool over = code > format.largest() || magnitude == fp32_infinity;
  code = over ? (keeps ? format.largest() : format.beyond()) : code;
  std::uint32_t sign = (bits >> 31) << (format.exponent + format.mantissa);
  if (format.specials == Specials::fnuz) sign = (code == 0 || code == format.nan()) ? 0u : sign;
  if (format.specials == Specials::fn) sign = code == format.nan() ? 0u : sign;
  return magnitude > fp32_infinity ? format.nan() : code | sign;
}

/// A significand on its way to its hidden place, bit `hidden`: `binades` up so far.
struct Leading {
  std::uint32_t significand{0};
  std::uint32_t binades{0};
};
KVCTS_HD constexpr Leading lift(Leading from, int hidden, int by) {
  if (by > hidden) return from;
  const bool small = from.significand >> (hidden + 1 - by) == 0;
  return {small ? from.significand << by : from.significand,
          small ? from.binades + static_cast<std::uint32_t>(by) : from.binades};
}

/// Code of a float format -> fp32 bits. Also branch-free.
KVCTS_HD constexpr std::uint32_t decode_float(const Format& format, std::uint32_t code) {
  const std::uint32_t magnitude = code & format.top();
  const std::uint32_t sign = ((code >> (format.exponent + format.mantissa)) & 1u) << 31;
  const int rebias = 127 - format.bias;
  std::uint32_t bits = (magnitude << (23 - format.mantissa)) + (static_cast<std::uint32_t>(rebias) << 23);
  if (rebias != 0) {
    // A denormal is normal in fp32: shift its leading bit to the hidden place, one binade down per step. The hidden bit then
    // adds one to the exponent.
    const int hidden = format.mantissa;
    const Leading leading = lift(lift(lift(lift({magnitude, 0}, hidden, 8), hidden, 4), hidden, 2), hidden, 1);
    const std::uint32_t exponent = static_cast<std::uint32_t>(rebias) - leading.binades;
    const std::uint32_t normalised = (leading.significand << (23 - format.mantissa)) + (exponent << 23);
    bits = magnitude >> format.mantissa == 0 ? (magnitude == 0 ? 0u : normalised) : bits;
  }
  bits |= sign;
  if (format.specials == Specials::fnuz) return code == format.nan() ? fp32_nan : bits;
  if (format.specials == Specials::fn) return magnitude == format.nan() ? fp32_nan : bits;
  if (format.specials == Specials::ieee) {
    bits = magnitude == format.infinity() ? sign | fp32_infinity : bits;
    return magnitude > format.infinity() ? fp32_nan : bits;
  }
  return bits;
}

/// fp32 bits -> nearest integer, ties to even, clamped; NaN -> 0. Two's complement in 32 bits.
KVCTS_HD constexpr std::int32_t encode_integer(const CodeRange& range, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & ~fp32_sign;
  const auto exponent = static_cast<std::int32_t>(magnitude >> 23) - 127;
  const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;  // denormals: far below 1/2 in any case
  // From 2^10 on every range is exceeded; 2^10 itself needs a shift of 13.
  const std::int32_t capped = exponent > 10 ? 10 : exponent;
  const std::uint32_t rounded = shift_to_even(significand, static_cast<std::uint32_t>(23 - capped));
  const auto value = (bits & fp32_sign) != 0 ? -static_cast<std::int32_t>(rounded) : static_cast<std::int32_t>(rounded);
  const std::int32_t clamped = value < range.least ? range.least : value > range.most ? range.most : value;
  return magnitude > fp32_infinity ? 0 : clamped;
}

/// An integer of at most 24 bits -> fp32 bits, exactly.
KVCTS_HD constexpr std::uint32_t decode_integer(std::int32_t value) {
  if (value == 0) return 0;
  std::uint32_t significand = value < 0 ? static_cast<std::uint32_t>(-value) : static_cast<std::uint32_t>(value);
  std::uint32_t exponent = 127 + 23;
  while ((significand & 0x800000u) == 0) {
    significand <<= 1;
    --exponent;
  }
  return (value < 0 ? fp32_sign : 0u) | (exponent << 23) | (significand & 0x7fffffu);
}

/// fp32 bits -> e8m0.
KVCTS_HD constexpr std::uint32_t encode_e8m0(std::uint32_t bits, Overflow overflow, Rounding rounding) {
  const std::uint32_t magnitude = bits & ~fp32_sign;
  if (magnitude > fp32_infinity) return 0xff;
  std::uint32_t code = magnitude >> 23;
  const std::uint32_t fraction = magnitude & 0x7fffffu;
  if (code == 0) {
    // Denormals: code 0 is 2^-127, fraction 0x400000; code 1 is 2^-126.
    const bool next =
        rounding == Rounding::up ? fraction > 0x400000u : rounding == Rounding::nearest && fraction >= 0x600000u;
    code = next ? 1u : 0u;
  } else if (rounding == Rounding::up) {
    code += fraction != 0 ? 1u : 0u;
  } else if (rounding == Rounding::nearest) {
    code += fraction >= 0x400000u ? 1u : 0u;
  }
  return code > 0xfeu ? (overflow == Overflow::saturate ? 0xfeu : 0xffu) : code;
}

/// e8m0 -> fp32 bits; 2^-127 is a denormal there.
KVCTS_HD constexpr std::uint32_t decode_e8m0(std::uint32_t code) {
  return code == 0xffu ? fp32_nan : code == 0 ? 0x400000u : code << 23;
}

/// fp32 bits -> code of any dtype, right-aligned in its layout::bits(dtype) bits. `rounding` counts for e8m0 only.
KVCTS_HD constexpr std::uint32_t encode(layout::Dtype dtype, std::uint32_t bits, Overflow overflow = Overflow::saturate,
                                        Rounding rounding = Rounding::down) {
  using layout::Dtype;
  if (dtype == Dtype::e8m0) return encode_e8m0(bits, overflow, rounding);
  if (is_float(dtype)) return encode_float(format_of(dtype), bits, overflow);
  return static_cast<std::uint32_t>(encode_integer(range_of(dtype), bits)) & (dtype == Dtype::int4 ? 0xfu : 0xffu);
}

/// Code of any dtype, right-aligned -> fp32 bits.
KVCTS_HD constexpr std::uint32_t decode(layout::Dtype dtype, std::uint32_t code) {
  using layout::Dtype;
  if (dtype == Dtype::e8m0) return decode_e8m0(code);
  if (is_float(dtype)) return decode_float(format_of(dtype), code);
  auto value = static_cast<std::int32_t>(code);
  if (dtype == Dtype::int8) value = (value ^ 0x80) - 0x80;
  if (dtype == Dtype::int4) value = (value ^ 0x8) - 0x8;
  return decode_integer(value);
}

}  // namespace kvcts::kernels::convert
