// The inner loops of conversion, one version per worthwhile instruction set (as kernels/isa.hpp). Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/convert/block.hpp"
#include "layout/dtype.hpp"

namespace kvcts::kernels::convert {

inline constexpr std::size_t dtype_count = 12;
/// Prefetch distance: crosses page ends, where processors stop prefetching.
inline constexpr std::size_t prefetch_ahead = 4096;

/// n packed codes (low nibble first) -> n fp32 words.
using DecodeCodes = void (*)(const std::uint8_t* codes, std::uint32_t* out, std::size_t n);
/// n fp32 words -> n packed codes; a last lone nibble leaves the high nibble 0.
using EncodeCodes = void (*)(const std::uint32_t* in, std::uint8_t* codes, std::size_t n);
/// Blocks of 16 words, each times the factor of its block -> e2m1.
using EncodeNvfp4 = void (*)(const std::uint32_t* in, const float* factors, std::size_t blocks, std::uint8_t* codes);
/// n codes of 16 bits -> n codes of 8 bits.
using NarrowCodes = void (*)(const std::uint8_t* in, std::uint8_t* out, std::size_t n);
/// Largest magnitude of each block.
using BlockMaxima = void (*)(const std::uint32_t* in, std::size_t block, std::size_t blocks, std::uint32_t* maxima);
using Nvfp4Scales = void (*)(const std::uint32_t* maxima, float global, std::size_t blocks, std::uint8_t* codes,
                             float* factors);
/// Each word of a block times its factor, in place.
using ScaleValues = void (*)(std::uint32_t* values, const float* factors, std::size_t block, std::size_t blocks);
/// Copies n bytes past the caches; other threads see them after Drain.
using Stream = void (*)(std::uint8_t* to, const std::uint8_t* from, std::size_t n);
using Drain = void (*)();

struct Lanes {
  std::string_view name;
  DecodeCodes decode[dtype_count]{};
  EncodeCodes encode[dtype_count][2]{};  ///< by Overflow; e8m0: rounded down
  NarrowCodes narrow[2][4][2]{};         ///< [fp16, bf16][e4m3fn..e5m2fnuz][Overflow]; null: decode, then encode
  BlockMaxima maxima{};
  EncodeNvfp4 nvfp4{};
  Nvfp4Scales nvfp4_scales{};
  ScaleValues scale_values{};
  Stream stream{};
  Drain drain{};
};

/// The instruction sets that this CPU has, plainest first.
std::span<const Lanes> usable_lanes();
/// The one to use: the last of them.
const Lanes& best_lanes();

}  // namespace kvcts::kernels::convert
