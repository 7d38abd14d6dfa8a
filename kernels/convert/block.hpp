// Quantised blocks: elements that share a scale. One block at a time, on host and device; convert.hpp converts whole
// tensors, fast, with the same results.
//
// CONTRACT. amax = the largest magnitude of the block (a NaN counts as larger than infinity: it reaches the scale, where any
// reader sees it). All arithmetic is single fp32 operations, rounded to nearest even, denormals kept.
//
//   nvfp4      (16 elements, e2m1, scale e4m3fn, global fp32 g)      element * (scale * g)
//                scale = e4m3fn(amax / (6 * g))          6 is the largest e2m1; g is the decoding factor that the cache
//                                                        stores, usually tensor_amax / (6 * 448)
//                code  = e2m1(x * (1 / (scale * g)))     all zero where scale * g is 0
//   mx         (32 elements, e4m3fn or e2m1, scale e8m0)             element * scale                      OCP MX 1.0, 6.3
//                down (OCP): scale = 2^(floor(log2(amax)) - emax)    emax: exponent of the largest element, 8 or 2
//                up (NVIDIA): scale = 2^ceil(log2(amax / largest))
//                code  = element(x / scale), saturated               exact but for its rounding
//   row        (a token's head: any number of elements, fp8 or int8, scale fp32)    element * scale
//                scale = amax / largest; code = element(x * (1 / scale)), saturated; all zero where amax is 0
//
// Reciprocals are computed once per block and multiplied, as the quantising kernels of serving systems do. 1 / scale of a
// denormal scale is infinity there: its elements saturate, and 0 * infinity is NaN, as the formulas say.
#pragma once

#include <cstdint>

#if !defined(__CUDA_ARCH__)
#include <bit>
#endif

#include "kernels/convert/element.hpp"
#include "kernels/host_device.hpp"

namespace kvcts::kernels::convert {

inline constexpr int nvfp4_block = 16;
inline constexpr int mx_block = 32;

// Single operations, never contracted or flushed.
KVCTS_HD inline float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
KVCTS_HD inline std::uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}
KVCTS_HD inline float times(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
KVCTS_HD inline float over(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// A block's stored scale, and the factor that multiplies its elements before encoding.
struct BlockScale {
  std::uint32_t code{0};
  float factor{0};
};

/// `amax`: bits of the largest magnitude. `global`: the decoding factor g > 0.
KVCTS_HD inline BlockScale nvfp4_scale(std::uint32_t amax, float global) {
  const float wanted = over(float_of(amax), times(6.0F, global));
  const std::uint32_t code = encode_float(format_of(layout::Dtype::e4m3fn), bits_of(wanted), Overflow::saturate);
  const float scale = times(float_of(decode_float(format_of(layout::Dtype::e4m3fn), code)), global);
  return {code, scale == 0.0F ? 0.0F : over(1.0F, scale)};
}

/// Scale of a block of MX elements of `element` (e4m3fn or e2m1). `rounding`: down or up.
KVCTS_HD inline BlockScale mx_scale(std::uint32_t amax, layout::Dtype element, Rounding rounding) {
  if (amax > fp32_infinity) return {0xffu, float_of(fp32_nan)};
  const int emax = element == layout::Dtype::e2m1 ? 2 : 8;
  std::uint32_t code = 0;
  if (rounding == Rounding::up) {
    const Format format = format_of(element);
    const float largest = float_of(decode_float(format, format.largest()));
    code = encode_e8m0(bits_of(over(float_of(amax), largest)), Overflow::saturate, Rounding::up);
  } else {
    const std::uint32_t exponent = encode_e8m0(amax, Overflow::saturate, Rounding::down);
    code = exponent > static_cast<std::uint32_t>(emax) ? exponent - static_cast<std::uint32_t>(emax) : 0u;
  }
  // 1 / 2^(code - 127) = 2^(127 - code), a denormal from code 254 on.
  return {code, float_of(code == 254u ? 0x400000u : (254u - code) << 23)};
}

/// Scale (fp32 bits) of a row of `element` codes: fp8 of any kind, int8.
KVCTS_HD inline BlockScale row_scale(std::uint32_t amax, layout::Dtype element) {
  const float largest =
      element == layout::Dtype::int8 ? 127.0F : float_of(decode_float(format_of(element), format_of(element).largest()));
  const float scale = over(float_of(amax), largest);
  // Through encode_float(): NaN bits differ between machines.
  const std::uint32_t code = encode_float(format_of(layout::Dtype::fp32), bits_of(scale), Overflow::special);
  return {code, scale == 0.0F ? 0.0F : over(1.0F, scale)};
}

/// One element under its block's factor.
KVCTS_HD inline std::uint32_t encode_scaled(layout::Dtype element, std::uint32_t bits, float factor) {
  return encode(element, bits_of(times(float_of(bits), factor)), Overflow::saturate);
}

}  // namespace kvcts::kernels::convert
