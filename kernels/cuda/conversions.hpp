// Quantise and dequantise: one thread per element where elements stand alone, one per block where they share a scale. Same
// arithmetic as kernels/convert, bit for bit; fp4 codes use the hardware instruction where the target has it.
#pragma once

#include "kernels/convert/block.hpp"
#include "kernels/cuda/tiles.hpp"

// cvt.rn.satfinite.e2m1x2.f32 exists for the a and f targets of compute capability 10 and above.
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL) || \
    defined(__CUDA_ARCH_FEAT_SM121_ALL)
#define KVCTS_HARDWARE_FP4 1
#endif

namespace kvcts::cuda {

/// Two numbers (fp32 bits) -> two e2m1 codes, the first in the low nibble.
KVCTS_HD inline u32 encode_fp4_pair(u32 low, u32 high) {
#if defined(KVCTS_HARDWARE_FP4)
  unsigned short out;
  asm("{ .reg .b8 pair; cvt.rn.satfinite.e2m1x2.f32 pair, %1, %2; mov.b16 %0, {pair, 0}; }"
      : "=h"(out)
      : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
  return out;
#else
  using kernels::convert::Overflow;
  return kernels::convert::encode(layout::Dtype::e2m1, low, Overflow::saturate) |
         kernels::convert::encode(layout::Dtype::e2m1, high, Overflow::saturate) << 4;
#endif
}

KVCTS_HD inline u32 load_code(const u8* memory, u32 width, u64 element) {
  if (width == 32) return reinterpret_cast<const u32*>(memory)[element];
  if (width == 16) return reinterpret_cast<const std::uint16_t*>(memory)[element];
  if (width == 8) return memory[element];
  return memory[element / 2] >> (4 * (element & 1)) & 0xfu;
}

/// Two neighbouring codes, starting at an even element.
KVCTS_HD inline void store_pair(u8* memory, u32 width, u64 element, u32 first, u32 second, bool both) {
  if (width == 32) {
    reinterpret_cast<u32*>(memory)[element] = first;
    if (both) reinterpret_cast<u32*>(memory)[element + 1] = second;
  } else if (width == 16) {
    reinterpret_cast<std::uint16_t*>(memory)[element] = static_cast<std::uint16_t>(first);
    if (both) reinterpret_cast<std::uint16_t*>(memory)[element + 1] = static_cast<std::uint16_t>(second);
  } else if (width == 8) {
    memory[element] = static_cast<u8>(first);
    if (both) memory[element + 1] = static_cast<u8>(second);
  } else {
    memory[element / 2] = static_cast<u8>(first | (both ? second << 4 : 0u));
  }
}

/// Encodes a pair under a factor (1 = unchanged).
KVCTS_HD inline void store_encoded(u8* memory, layout::Dtype dtype, u32 width, u64 element, u32 first, u32 second,
                                   bool both) {
  using kernels::convert::encode;
  using kernels::convert::Overflow;
  if (dtype == layout::Dtype::e2m1) {
    memory[element / 2] = static_cast<u8>(encode_fp4_pair(first, both ? second : 0u));
    return;
  }
  store_pair(memory, width, element, encode(dtype, first, Overflow::saturate), encode(dtype, second, Overflow::saturate),
             both);
}

/// Elements that stand alone: any dtype to any other, saturating.
struct Convert {
  using Args = ConvertArgs;
  struct Shared {};
  using Local = NoLocal;
  /// Elements per thread in one tile: an even number, so no two threads share a byte.
  static constexpr u32 each = 8;
  KVCTS_HD static u64 tiles(const ConvertArgs& args) { return (args.elements + each * threads - 1) / (each * threads); }
  KVCTS_HD static void load(const ConvertArgs&, u64, u32, Shared&) {}
  KVCTS_HD static void work(const ConvertArgs& args, u64 tile, u32 thread, const Shared&, NoLocal&) {
    const auto from = static_cast<layout::Dtype>(args.from_dtype), to = static_cast<layout::Dtype>(args.to_dtype);
    for (u32 k = 0; k < each; k += 2) {
      // Neighbouring threads take neighbouring pairs.
      const u64 element = 2 * ((tile * (each / 2) + k / 2) * threads + thread);
      if (element >= args.elements) return;
      const bool both = element + 1 < args.elements;
      const u32 first = kernels::convert::decode(from, load_code(args.from, args.from_width, element));
      const u32 second = both ? kernels::convert::decode(from, load_code(args.from, args.from_width, element + 1)) : 0u;
      store_encoded(args.to, to, args.to_width, element, first, second, both);
    }
  }
  KVCTS_HD static void finish(const ConvertArgs&, NoLocal&) {}
};

/// Largest magnitude of a block, as fp32 bits: a NaN counts as larger than infinity.
KVCTS_HD inline u32 block_amax(const BlockArgs& args, u64 first, u32 count) {
  u32 amax = 0;
  for (u32 k = 0; k < count; ++k) {
    const u32 bits = kernels::convert::decode(static_cast<layout::Dtype>(args.wide_dtype),
                                              load_code(args.wide, args.wide_width, first + k));
    const u32 magnitude = bits & 0x7fffffffu;
    if (magnitude > amax) amax = magnitude;
  }
  return amax;
}

/// Blocks that share a scale: contract in convert/block.hpp. One thread per block.
struct BlockKernel {
  using Args = BlockArgs;
  struct Shared {};
  using Local = NoLocal;
  KVCTS_HD static u64 tiles(const BlockArgs& args) { return (args.blocks + threads - 1) / threads; }
  KVCTS_HD static void load(const BlockArgs&, u64, u32, Shared&) {}
  KVCTS_HD static void finish(const BlockArgs&, NoLocal&) {}
};

struct Quantise : BlockKernel {
  KVCTS_HD static void work(const BlockArgs& args, u64 tile, u32 thread, const Shared&, NoLocal&) {
    using namespace kernels::convert;
    const u64 block = tile * threads + thread;
    if (block >= args.blocks) return;
    const auto wide = static_cast<layout::Dtype>(args.wide_dtype), code = static_cast<layout::Dtype>(args.code_dtype);
    const u64 first = block * args.block;
    const u32 amax = block_amax(args, first, args.block);
    BlockScale scale;
    switch (args.rule) {
      case ScaleRule::nvfp4:
        scale = nvfp4_scale(amax, args.global);
        break;
      case ScaleRule::mx_down:
        scale = mx_scale(amax, code, Rounding::down);
        break;
      case ScaleRule::mx_up:
        scale = mx_scale(amax, code, Rounding::up);
        break;
      case ScaleRule::row:
        scale = row_scale(amax, code);
        break;
    }
    if (args.rule == ScaleRule::row) {
      reinterpret_cast<u32*>(args.scales)[block] = scale.code;
    } else {
      args.scales[block] = static_cast<u8>(scale.code);
    }
    for (u32 k = 0; k < args.block; k += 2) {
      const bool both = k + 1 < args.block;
      const u32 x = decode(wide, load_code(args.wide, args.wide_width, first + k));
      const u32 y = both ? decode(wide, load_code(args.wide, args.wide_width, first + k + 1)) : 0u;
      store_encoded(args.codes, code, args.code_width, first + k, bits_of(times(float_of(x), scale.factor)),
                    bits_of(times(float_of(y), scale.factor)), both);
    }
  }
};

struct Dequantise : BlockKernel {
  KVCTS_HD static void work(const BlockArgs& args, u64 tile, u32 thread, const Shared&, NoLocal&) {
    using namespace kernels::convert;
    const u64 block = tile * threads + thread;
    if (block >= args.blocks) return;
    const auto wide = static_cast<layout::Dtype>(args.wide_dtype), code = static_cast<layout::Dtype>(args.code_dtype);
    float scale = 0;
    switch (args.rule) {
      case ScaleRule::nvfp4:
        scale = times(float_of(decode(layout::Dtype::e4m3fn, args.scales[block])), args.global);
        break;
      case ScaleRule::mx_down:
      case ScaleRule::mx_up:
        scale = float_of(decode(layout::Dtype::e8m0, args.scales[block]));
        break;
      case ScaleRule::row:
        scale = float_of(reinterpret_cast<const u32*>(args.scales)[block]);
        break;
    }
    for (u32 k = 0; k < args.block; k += 2) {
      const u64 element = block * args.block + k;
      const bool both = k + 1 < args.block;
      const u32 x = decode(code, load_code(args.codes, args.code_width, element));
      const u32 y = both ? decode(code, load_code(args.codes, args.code_width, element + 1)) : 0u;
      store_encoded(args.wide, wide, args.wide_width, element, bits_of(times(float_of(x), scale)),
                    bits_of(times(float_of(y), scale)), both);
    }
  }
};

}  // namespace kvcts::cuda
