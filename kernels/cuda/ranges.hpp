// Whole ranges of memory: writing and checking poison, comparing two memories, digests, and a pure reader.
#pragma once

#include "kernels/cuda/findings.hpp"
#include "kernels/cuda/tiles.hpp"
#include "kernels/tag_math.hpp"

namespace kvcts::cuda {

/// Poison of the 16 bytes at a multiple of 16 of a memory file.
KVCTS_HD inline Vector poison_vector(u64 row, u64 offset) {
  const u32 i = static_cast<u32>(offset >> 2);
  return {(kernels::word(row, i) & kernels::poison_and) | kernels::poison_or,
          (kernels::word(row, i + 1) & kernels::poison_and) | kernels::poison_or,
          (kernels::word(row, i + 2) & kernels::poison_and) | kernels::poison_or,
          (kernels::word(row, i + 3) & kernels::poison_and) | kernels::poison_or};
}

/// The range of tile (or access) `number`: the last one that begins at or before it. Empty ranges have none.
KVCTS_HD inline u64 range_of(const PoisonArgs& args, u64 number) {
  u64 low = 0, high = args.count;
  while (high - low > 1) {
    const u64 middle = low + (high - low) / 2;
    if (args.first[middle] <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct PoisonKernel {
  using Args = PoisonArgs;
  struct Shared {
    Range bytes;  ///< of the tile's range
    u64 at;       ///< of the tile's first access
    u64 part;     ///< which 16 GiB of the memory file that is
    u64 row;      ///< their key
    bool whole;   ///< every access of the tile lies in the range
  };
  struct Unit {
    u64 at;
    int low, high;
  };
  static constexpr u32 ahead = range_vectors / threads;
  static constexpr int part_bits = 34;
  KVCTS_HD static u64 tiles(const PoisonArgs& args) { return args.tiles; }
  KVCTS_HD static void load(const PoisonArgs& args, u64 tile, u32 thread, Shared& shared) {
    if (thread != 0) return;
    shared.at = 0;
    shared.whole = false;
    if (args.fine == 0) {
      const u64 range = range_of(args, tile);
      shared.bytes = args.ranges[range];
      shared.at = (shared.bytes.begin & ~u64{15}) + 16 * (tile - args.first[range]) * range_vectors;
      shared.whole = shared.at >= shared.bytes.begin && shared.at + 16 * range_vectors <= shared.bytes.end;
    }
    shared.part = (args.offset + shared.at) >> part_bits;
    shared.row = kernels::poison_row(args.key, (args.offset + shared.at) >> 2);
  }
  /// Access `u` of a tile; low >= high: none.
  KVCTS_HD static Unit unit(const PoisonArgs& args, u64 tile, u32 u, const Shared& shared) {
    Range bytes;
    u64 at;
    if (args.fine != 0) {
      const u64 number = tile * range_vectors + u;
      if (number >= args.first[args.count]) return {0, 0, 0};
      const u64 range = range_of(args, number);
      bytes = args.ranges[range];
      at = (bytes.begin & ~u64{15}) + 16 * (number - args.first[range]);
    } else {
      bytes = shared.bytes;
      at = shared.at + 16 * u64{u};
    }
    if (at >= bytes.end) return {0, 0, 0};
    return {at, at < bytes.begin ? static_cast<int>(bytes.begin - at) : 0,
            bytes.end - at < 16 ? static_cast<int>(bytes.end - at) : 16};
  }
  KVCTS_HD static Vector expected(const PoisonArgs& args, u64 at, const Shared& shared) {
    const u64 offset = args.offset + at;
    return poison_vector(offset >> part_bits == shared.part ? shared.row : kernels::poison_row(args.key, offset >> 2),
                         offset);
  }
};

struct WritePoison : PoisonKernel {
  using Local = NoLocal;
  KVCTS_HD static void work(const PoisonArgs& args, u64 tile, u32 thread, const Shared& shared, NoLocal&) {
    if (shared.whole) {
#if defined(__CUDACC__)
#pragma unroll
#endif
      for (u32 k = 0; k < ahead; ++k) {
        const u64 at = shared.at + 16 * u64{thread + k * threads};
        store16(args.memory + at, expected(args, at, shared));
      }
      return;
    }
    for (u32 u = thread; u < range_vectors; u += threads) {
      const Unit it = unit(args, tile, u, shared);
      if (it.low >= it.high) continue;
      const Vector v = expected(args, it.at, shared);
      if (it.high - it.low == 16) {
        store16(args.memory + it.at, v);
      } else {
        store_part(args.memory + it.at, v, it.low, it.high);
      }
    }
  }
  KVCTS_HD static void finish(const PoisonArgs&, NoLocal&) {}
};

struct CheckPoison : PoisonKernel {
  using Local = Tally;
  KVCTS_HD static void work(const PoisonArgs& args, u64 tile, u32 thread, const Shared& shared, Tally& tally) {
    Unit it[ahead];
    Vector seen[ahead];
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < ahead; ++k) {
      const u32 u = thread + k * threads;
      it[k] = shared.whole ? Unit{shared.at + 16 * u64{u}, 0, 16} : unit(args, tile, u, shared);
      seen[k] = it[k].low < it[k].high ? load16(args.memory + it[k].at) : Vector{};
    }
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < ahead; ++k) {
      if (it[k].low >= it[k].high) continue;
      const Vector wrong = difference(seen[k], expected(args, it[k].at, shared));
      note_vector(args.probe, tally, it[k].at, masked(wrong, it[k].low, it[k].high));
    }
  }
  KVCTS_HD static void finish(const PoisonArgs& args, Tally& tally) { report(args.probe, tally); }
};

/// A tile of a plain range: `range_vectors` accesses, of which each thread issues `range_vectors / threads`.
template <class RangeArgs>
struct RangeKernel {
  using Args = RangeArgs;
  struct Shared {};
  static constexpr u32 ahead = range_vectors / threads;
  KVCTS_HD static u64 tiles(const RangeArgs& args) { return (args.bytes + 16 * range_vectors - 1) / (16 * range_vectors); }
  KVCTS_HD static void load(const RangeArgs&, u64, u32, Shared&) {}
  /// Byte offset of access k of a thread.
  KVCTS_HD static u64 at(u64 tile, u32 thread, u32 k) { return 16 * (tile * range_vectors + thread + u64{k} * threads); }
  /// How many of its bytes belong to the range.
  KVCTS_HD static int valid(const RangeArgs& args, u64 at) {
    return at >= args.bytes ? 0 : args.bytes - at < 16 ? static_cast<int>(args.bytes - at) : 16;
  }
  /// Every access of the tile lies in the range.
  KVCTS_HD static bool whole(const RangeArgs& args, u64 tile) { return at(tile + 1, 0, 0) <= args.bytes; }
};

struct Compare : RangeKernel<CompareArgs> {
  using Local = Tally;
  KVCTS_HD static void work(const CompareArgs& args, u64 tile, u32 thread, const Shared&, Tally& tally) {
    Vector seen[ahead], wanted[ahead];
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < ahead; ++k) {
      const bool there = valid(args, at(tile, thread, k)) > 0;
      seen[k] = there ? load16(args.observed + at(tile, thread, k)) : Vector{};
      wanted[k] = there ? load16(args.expected + at(tile, thread, k)) : Vector{};
    }
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < ahead; ++k) {
      const u64 here = at(tile, thread, k);
      note_vector(args.probe, tally, here, masked(difference(seen[k], wanted[k]), 0, valid(args, here)));
    }
  }
  KVCTS_HD static void finish(const CompareArgs& args, Tally& tally) { report(args.probe, tally); }
};

inline constexpr u64 digest_step = 0x9e3779b97f4a7c15u;

struct Digest : RangeKernel<DigestArgs> {
  struct Local {
    u64 sum{0};
  };
  KVCTS_HD static u64 term(u32 low, u32 high, u64 word) {
    return kernels::mix((u64{high} << 32 | low) + (word + 1) * digest_step);
  }
  KVCTS_HD static void work(const DigestArgs& args, u64 tile, u32 thread, const Shared&, Local& local) {
    const bool whole = RangeKernel::whole(args, tile);
    Vector seen[ahead];
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < ahead; ++k) {
      const int bytes = whole ? 16 : valid(args, at(tile, thread, k));
      seen[k] = bytes > 0 ? load16(args.memory + at(tile, thread, k)) : Vector{};
      if (bytes < 16) seen[k] = masked(seen[k], 0, bytes);
    }
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < ahead; ++k) {
      const u64 here = at(tile, thread, k);
      const int bytes = whole ? 16 : valid(args, here);
      if (bytes > 0) local.sum += term(seen[k].a, seen[k].b, here / 8);
      if (bytes > 8) local.sum += term(seen[k].c, seen[k].d, here / 8 + 1);
    }
    if (tile == 0 && thread == 0) local.sum += kernels::mix(args.bytes);
  }
  KVCTS_HD static void finish(const DigestArgs& args, Local& local) { add_by_warps(args.sum, local.sum); }
};

struct ReadOnly : RangeKernel<ReadArgs> {
  struct Local {
    u32 sum{0};
  };
  KVCTS_HD static void work(const ReadArgs& args, u64 tile, u32 thread, const Shared&, Local& local) {
    Vector seen[ahead];
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < ahead; ++k) {
      seen[k] = valid(args, at(tile, thread, k)) > 0 ? load16(args.memory + at(tile, thread, k)) : Vector{};
    }
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < ahead; ++k) local.sum ^= seen[k].a ^ seen[k].b ^ seen[k].c ^ seen[k].d;
  }
  KVCTS_HD static void finish(const ReadArgs& args, Local& local) {
    if (local.sum == args.unlikely) *args.never = local.sum;
  }
};

}  // namespace kvcts::cuda
