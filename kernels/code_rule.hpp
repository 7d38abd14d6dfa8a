// Which masks tag/1 puts on the codes of each dtype (contract in tag.hpp).
#pragma once

#include "kernels/tag_math.hpp"
#include "layout/dtype.hpp"

namespace kvcts::kernels {

/// Width and masks of a dtype's codes. Floats lose their top exponent bit (bit w-2), e8m0 its bit 6.
constexpr CodeRule code_rule(layout::Dtype dtype) {
  using layout::Dtype;
  switch (dtype) {
    case Dtype::fp32:
      return {32, 0xbfffffffu, 3};
    case Dtype::fp16:
    case Dtype::bf16:
      return {16, 0xbfffu, 3};
    case Dtype::e4m3fn:
    case Dtype::e5m2:
    case Dtype::e4m3fnuz:
    case Dtype::e5m2fnuz:
    case Dtype::e8m0:
      return {8, 0xbfu, 3};
    case Dtype::int8:
    case Dtype::uint8:
      return {8, 0xffu, 3};
    case Dtype::int4:
    case Dtype::e2m1:
      return {4, 0xfu, 1};
  }
  return {};
}

}  // namespace kvcts::kernels
