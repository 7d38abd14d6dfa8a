// Element dtypes: what one code in memory is. Cache schemes (NVFP4, MXFP8, ...) combine several; see scheme.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kvcts::layout {

enum class Dtype : std::uint8_t {
  fp32,
  fp16,
  bf16,
  e4m3fn,
  e5m2,
  e4m3fnuz,
  e5m2fnuz,
  int8,
  uint8,
  int4,
  e2m1,
  e8m0,
};

/// Width of one code in bits: 32, 16, 8 or 4. Two 4-bit codes share a byte (the plane sets the nibble order).
int bits(Dtype dtype);
std::string_view name(Dtype dtype);
/// Throws layout::Error naming the accepted dtypes.
Dtype dtype_from_name(std::string_view name);
std::span<const Dtype> all_dtypes();

}  // namespace kvcts::layout
