// What codes mean as numbers, and the nearest code of a number: from the definitions of the formats, by search in a table. It shares
// nothing with kernels/convert, whose results it has to equal.
#pragma once

#include <cstdint>

#include "layout/dtype.hpp"

namespace kvcts::script {

/// Every NaN is 0x7fffffff.
float number_of(layout::Dtype dtype, std::uint32_t code);
/// Nearest, ties to the even code, saturating. The sign of zero is kept where there is a -0. e8m0: of the magnitude,
/// ties up (as ml_dtypes does). `number` is finite.
std::uint32_t nearest_code(layout::Dtype dtype, float number);

}  // namespace kvcts::script
