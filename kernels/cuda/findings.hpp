// How checks count and locate wrong bytes: in each thread's registers, and in memory only when there are any.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace kvcts::cuda {

/// What one thread has found.
struct Tally {
  u64 wrong{0};
  u64 first{~u64{0}};
};

KVCTS_HD inline Vector difference(const Vector& x, const Vector& y) { return {x.a ^ y.a, x.b ^ y.b, x.c ^ y.c, x.d ^ y.d}; }
KVCTS_HD inline bool any(const Vector& v) { return (v.a | v.b | v.c | v.d) != 0; }

/// `wrong`: the xor of sixteen bytes at `offset` and their expected values. A rolled loop: this is the cold path.
KVCTS_HD inline void note_vector(const Probe& probe, Tally& tally, u64 offset, const Vector& wrong) {
  if (!any(wrong)) return;
  u64 low = u64{wrong.b} << 32 | wrong.a, high = u64{wrong.d} << 32 | wrong.c;
#if defined(__CUDACC__)
#pragma unroll 1
#endif
  for (const u64 end = offset + 16; offset < end; ++offset) {
    const bool here = (low & 0xff) != 0;
    low = low >> 8 | high << 56;
    high >>= 8;
    if (!here) continue;
    ++tally.wrong;
    if (offset >= probe.from && offset < tally.first) tally.first = offset;
    if (offset < probe.from || offset >= probe.to) continue;
    const u64 place = add_atomically(&probe.findings->listed, 1);
    if (place < probe.capacity) probe.list[place] = offset;
  }
}

KVCTS_HD inline void report(const Probe& probe, const Tally& tally) {
  if (tally.wrong == 0) return;
  add_atomically(&probe.findings->wrong_bytes, tally.wrong);
  if (tally.first != ~u64{0}) min_atomically(&probe.findings->first, tally.first);
}

/// 0xff for each byte k of word `word` of a vector with low <= 4 * word + k < high.
KVCTS_HD inline u32 byte_mask(int word, int low, int high) {
  const int from = low - 4 * word < 0 ? 0 : low - 4 * word;
  const int to = high - 4 * word > 4 ? 4 : high - 4 * word;
  if (from >= to) return 0;
  const u32 above = to == 4 ? 0xffffffffu : (u32{1} << (8 * to)) - 1;
  return above & ~((u32{1} << (8 * from)) - 1);
}
KVCTS_HD inline Vector masked(const Vector& v, int low, int high) {
  return {v.a & byte_mask(0, low, high), v.b & byte_mask(1, low, high), v.c & byte_mask(2, low, high),
          v.d & byte_mask(3, low, high)};
}

/// Writes bytes [low, high) of a vector, and no other.
KVCTS_HD inline void store_part(u8* address, const Vector& v, int low, int high) {
  for (int k = 0; k < 16; ++k) {  // unrolled: k picks a register
    const u32 word = k < 4 ? v.a : k < 8 ? v.b : k < 12 ? v.c : v.d;
    if (k >= low && k < high) address[k] = static_cast<u8>(word >> (8 * (k & 3)));
  }
}

}  // namespace kvcts::cuda
