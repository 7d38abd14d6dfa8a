// The hardware features that device kernels use, and their host equivalents for the CPU twin: 16-byte accesses, wide
// products, atomics. The twin runs the threads of a launch one by one, so its atomics are plain operations.
#pragma once

#include <cstdint>

#include "kernels/host_device.hpp"

namespace kvcts::cuda {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

/// Sixteen bytes, little endian: the unit of one memory access.
struct alignas(16) Vector {
  u32 a, b, c, d;
};

KVCTS_HD inline Vector load16(const void* address) {
#if defined(__CUDA_ARCH__)
  const uint4 v = *static_cast<const uint4*>(address);
  return {v.x, v.y, v.z, v.w};
#else
  return *static_cast<const Vector*>(address);
#endif
}

KVCTS_HD inline void store16(void* address, const Vector& v) {
#if defined(__CUDA_ARCH__)
  *static_cast<uint4*>(address) = make_uint4(v.a, v.b, v.c, v.d);
#else
  *static_cast<Vector*>(address) = v;
#endif
}

/// Upper half of a 128-bit product.
KVCTS_HD inline u64 high_product(u64 x, u64 y) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(x, y);
#else
  __extension__ using wide = unsigned __int128;
  return static_cast<u64>((static_cast<wide>(x) * y) >> 64);
#endif
}

/// Low 32 bits of (high:low) >> shift, 0 <= shift < 32.
KVCTS_HD inline u32 funnel(u32 low, u32 high, u32 shift) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, shift);
#else
  return static_cast<u32>(((u64{high} << 32) | low) >> shift);
#endif
}

// CUDA's overloads distinguish the two 64-bit integer types of the same size.
KVCTS_HD inline u64 add_atomically(u64* at, u64 value) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
#else
  const u64 before = *at;
  *at += value;
  return before;
#endif
}

/// Adds every thread's value to `*at`, with one atomic per warp; all threads of the block must call it. The twin's threads
/// call it one by one.
KVCTS_HD inline void add_by_warps(u64* at, u64 value) {
#if defined(__CUDA_ARCH__)
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(value), distance);
  if (threadIdx.x % 32 != 0) return;
#endif
  if (value != 0) add_atomically(at, value);
}

KVCTS_HD inline void min_atomically(u64* at, u64 value) {
#if defined(__CUDA_ARCH__)
  atomicMin(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
#else
  if (value < *at) *at = value;
#endif
}

/// Replaces the bits of a word under `mask`; other threads may replace other bits of it concurrently.
KVCTS_HD inline void put_bits_atomically(u32* at, u32 mask, u32 bits) {
#if defined(__CUDA_ARCH__)
  atomicAnd(at, ~mask | bits);
  atomicOr(at, bits);
#else
  *at = (*at & ~mask) | bits;
#endif
}

/// Division by a number known at launch: one wide product. Exact for value * divisor < 2^64, see divider().
struct Divider {
  u64 divisor{1};
  u64 magic{0};  ///< ceil(2^64 / divisor); 0: divide
};
KVCTS_HD inline u64 quotient(const Divider& by, u64 value) {
  if (by.divisor == 1) return value;
  return by.magic != 0 ? high_product(value, by.magic) : value / by.divisor;
}

/// The same for 31-bit values.
struct SmallDivider {
  u32 divisor{1};
  u32 magic{0};
  u32 shift{0};
};
KVCTS_HD inline u32 quotient(const SmallDivider& by, u32 value) {
  if (by.divisor == 1) return value;
#if defined(__CUDA_ARCH__)
  return __umulhi(value, by.magic) >> by.shift;
#else
  return static_cast<u32>((u64{value} * by.magic) >> 32) >> by.shift;
#endif
}

}  // namespace kvcts::cuda
