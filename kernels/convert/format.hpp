// What the bits of each float dtype mean. Everything else in this folder derives from this table.
//
//   binary16, binary32   IEEE 754-2019          bf16             the top half of binary32
//   e4m3fn, e5m2         OCP OFP8 1.0           e4m3fnuz, e5m2fnuz   ONNX/ml_dtypes "fnuz": no -0, NaN is the code of -0
//   e2m1                 OCP MX 1.0 (FP4)       e8m0             OCP MX 1.0 (scale), no sign, no zero: see element.hpp
#pragma once

#include <cstdint>

#include "kernels/host_device.hpp"
#include "layout/dtype.hpp"

namespace kvcts::kernels::convert {

/// Which codes are not finite numbers.
enum class Specials : std::uint8_t {
  ieee,  ///< top exponent: infinities and NaNs
  fn,    ///< no infinity; NaN is the code with all exponent and mantissa bits set
  fnuz,  ///< no infinity, no -0: NaN is the code of -0
  none,  ///< finite numbers only
};

/// A float of 1 sign bit, `exponent` and `mantissa` bits.
struct Format {
  int exponent{8};
  int mantissa{23};
  int bias{127};
  Specials specials{Specials::ieee};

  KVCTS_HD constexpr int width() const { return 1 + exponent + mantissa; }
  KVCTS_HD constexpr std::uint32_t sign() const { return std::uint32_t{1} << (exponent + mantissa); }
  /// Exponent and mantissa all set: the largest code without its sign.
  KVCTS_HD constexpr std::uint32_t top() const { return sign() - 1; }
  /// Infinity, where there is one.
  KVCTS_HD constexpr std::uint32_t infinity() const { return top() & ~((std::uint32_t{1} << mantissa) - 1); }
  /// The largest finite number.
  KVCTS_HD constexpr std::uint32_t largest() const {
    return specials == Specials::ieee ? infinity() - 1 : specials == Specials::fn ? top() - 1 : top();
  }
  /// The NaN that conversions write, PTX's canonical one: sign clear, all else set. `none` has no NaN: PTX's cvt.satfinite
  /// writes the largest number instead.
  KVCTS_HD constexpr std::uint32_t nan() const { return specials == Specials::fnuz ? sign() : top(); }
  /// What a number beyond the largest becomes without saturation.
  KVCTS_HD constexpr std::uint32_t beyond() const { return specials == Specials::ieee ? infinity() : nan(); }
};

KVCTS_HD constexpr bool is_float(layout::Dtype dtype) {
  using layout::Dtype;
  return dtype != Dtype::int8 && dtype != Dtype::uint8 && dtype != Dtype::int4 && dtype != Dtype::e8m0;
}

/// The format of a float dtype (is_float()).
KVCTS_HD constexpr Format format_of(layout::Dtype dtype) {
  using layout::Dtype;
  switch (dtype) {
    case Dtype::fp16:
      return {5, 10, 15, Specials::ieee};
    case Dtype::bf16:
      return {8, 7, 127, Specials::ieee};
    case Dtype::e4m3fn:
      return {4, 3, 7, Specials::fn};
    case Dtype::e5m2:
      return {5, 2, 15, Specials::ieee};
    case Dtype::e4m3fnuz:
      return {4, 3, 8, Specials::fnuz};
    case Dtype::e5m2fnuz:
      return {5, 2, 16, Specials::fnuz};
    case Dtype::e2m1:
      return {2, 1, 1, Specials::none};
    default:
      return {8, 23, 127, Specials::ieee};
  }
}

/// Range of an integer dtype.
struct CodeRange {
  std::int32_t least{0}, most{0};
};
KVCTS_HD constexpr CodeRange range_of(layout::Dtype dtype) {
  using layout::Dtype;
  return dtype == Dtype::int4 ? CodeRange{-8, 7} : dtype == Dtype::int8 ? CodeRange{-128, 127} : CodeRange{0, 255};
}

}  // namespace kvcts::kernels::convert
