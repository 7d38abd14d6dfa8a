// NVFP4 of fp16 and bf16 within 16-bit lanes. A block's scale is a function of its largest magnitude; a code is a function
// of its element's magnitude and the scale's code, and grows with the magnitude. Both functions come from block.hpp and are
// tabulated once per tensor: 2^15 scales, and for each scale the 7 magnitudes at which the code becomes 1, 2, .. 7. A code
// then takes three comparisons. Internal to this folder.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "layout/dtype.hpp"

namespace kvcts::kernels::convert {

inline constexpr std::size_t short_blocks = 16;  ///< blocks made at once

struct ShortTables {
  std::uint32_t infinity{0};                                          ///< of the source
  alignas(64) std::array<std::array<std::uint16_t, 8>, 128> least{};  ///< by scale code; [0] is not used
  alignas(64) std::array<std::uint8_t, 0x8000> scale{};               ///< by magnitude
};

/// nullptr where this does not apply: another dtype, a CPU without the instructions, a global scale under which 1 / scale
/// overflows.
std::unique_ptr<const ShortTables> short_tables(layout::Dtype from, float global);

/// 16 blocks of 16 codes -> 128 bytes of e2m1, 16 scales. False, and nothing written, if any is a NaN.
bool quantise_short(const ShortTables& tables, const std::uint8_t* in, std::uint8_t* codes, std::uint8_t* scales);

}  // namespace kvcts::kernels::convert
