// What codes mean as numbers, and the nearest code of a number: from the definitions of the formats, by table search. Shares
// nothing with kernels/convert, whose results it must equal.
#pragma once

#include <array>
#include <cstdint>

#include "layout/dtype.hpp"

namespace kvcts::scenario {

/// Every NaN is 0x7fffffff.
float number_of(layout::Dtype dtype, std::uint32_t code);
/// Nearest, ties to the even code, saturating. The sign of zero is kept where there is a -0. e8m0: of the magnitude,
/// ties up (as ml_dtypes does). `number` is finite.
std::uint32_t nearest_code(layout::Dtype dtype, float number);

/// Content `codes`: the n-th code. Dtypes of up to 16 bits: every code in turn. fp32 has too many: every other one comes
/// from a list, so each kind of number appears within 32 channels; the rest are arbitrary.
inline constexpr std::array<std::uint32_t, 16> fp32_kinds{
    0x00000000, 0x80000000,              // +0, -0
    0x7f800000, 0xff800000,              // infinities
    0x7fc00000, 0xffc00001, 0x7fffffff,  // quiet NaNs and their payloads
    0x7f800001, 0xffa5a5a5,              // signalling NaNs
    0x00000001, 0x80000001, 0x007fffff,  // least and largest subnormal
    0x00800000, 0x7f7fffff, 0xff7fffff,  // least and largest normal
    0x3f800000,                          // 1
};
inline std::uint32_t code_in_turn(layout::Dtype dtype, std::uint64_t n) {
  if (dtype == layout::Dtype::fp32)
    return n % 2 == 0 ? fp32_kinds[n / 2 % fp32_kinds.size()] : static_cast<std::uint32_t>(n * 0x9e3779b97f4a7c15u >> 32);
  return static_cast<std::uint32_t>(n) & ((1u << layout::bits(dtype)) - 1);
}

}  // namespace kvcts::scenario
