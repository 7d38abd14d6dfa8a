// NVFP4 of fp16 and bf16 without leaving 16-bit lanes. A block's scale is a function of its largest magnitude, and a code is
// a function of its element's magnitude and the scale's code, which grows with the magnitude. Both functions are tabulated,
// by block.hpp's own, once for a tensor: 2^15 scales, and for each scale the 7 magnitudes from which on the code is 1, 2,
// .. 7. A code is then three comparisons. Internal to this folder.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "layout/dtype.hpp"

namespace kvcts::kernels::convert {

inline constexpr std::size_t short_blocks = 16;  ///< that are made at once

struct ShortTables {
  std::uint32_t infinity{0};                                          ///< of the source
  alignas(64) std::array<std::array<std::uint16_t, 8>, 128> least{};  ///< by scale code; [0] is not used
  alignas(64) std::array<std::uint8_t, 0x8000> scale{};               ///< by magnitude
};

/// nullptr where the way is not open: another dtype, a CPU without the instructions, a global scale under which 1 / scale
/// overflows.
std::unique_ptr<const ShortTables> short_tables(layout::Dtype from, float global);

/// 16 blocks of 16 codes -> 128 bytes of e2m1, 16 scales. False, and nothing written, when there is a NaN among them.
bool quantise_short(const ShortTables& tables, const std::uint8_t* in, std::uint8_t* codes, std::uint8_t* scales);

}  // namespace kvcts::kernels::convert
