// Bytes from one layout to another: relayout between any two planes, scatter by slot mapping, gather by block table. A tile
// is `threads` rows; each thread computes one row's two addresses, then all move the tile's pieces of 1 to 16 bytes.
#pragma once

#include "kernels/cuda/tiles.hpp"
#include "kernels/tag_math.hpp"

namespace kvcts::cuda {

/// Two places of one row, in bytes; from < 0: no such row.
struct RowPair {
  i64 from, to;
};
struct PairTile {
  RowPair rows[threads];
};

/// Reads that a thread issues before its first write.
inline constexpr u32 copies_ahead = 4;

template <class T>
KVCTS_HD inline T swapped(T v) {
  return static_cast<T>(static_cast<T>((v & static_cast<T>(0x0f0f0f0f0f0f0f0fu)) << 4) |
                        static_cast<T>((v >> 4) & static_cast<T>(0x0f0f0f0f0f0f0f0fu)));
}
KVCTS_HD inline Vector swapped(const Vector& v) {
  return {kernels::swap_nibbles(v.a), kernels::swap_nibbles(v.b), kernels::swap_nibbles(v.c), kernels::swap_nibbles(v.d)};
}
template <class T>
KVCTS_HD inline T load(const u8* at) {
  return *reinterpret_cast<const T*>(at);
}
template <>
KVCTS_HD inline Vector load<Vector>(const u8* at) {
  return load16(at);
}
template <class T>
KVCTS_HD inline void store(u8* at, const T& v) {
  *reinterpret_cast<T*>(at) = v;
}
template <>
KVCTS_HD inline void store<Vector>(u8* at, const Vector& v) {
  store16(at, v);
}

/// Moves all pieces of a tile, T at a time. `place(unit)` is the RowPair of a unit.
template <class T, class Place>
KVCTS_HD inline void move_tile(const u8* from, u8* to, u32 units, u32 thread, bool swap, const Place& place) {
  for (u32 u = thread; u < units; u += copies_ahead * threads) {
    i64 target[copies_ahead];  // below 0: nothing to move
    T piece[copies_ahead];
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < copies_ahead; ++k) {
      const u32 number = u + k * threads;
      const RowPair at = number < units ? place(number) : RowPair{-1, -1};
      target[k] = at.from < 0 ? -1 : at.to;
      piece[k] = at.from < 0 ? T{} : load<T>(from + at.from);
    }
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (u32 k = 0; k < copies_ahead; ++k) {
      if (target[k] >= 0) store<T>(to + target[k], swap ? swapped(piece[k]) : piece[k]);
    }
  }
}

template <class Place>
KVCTS_HD inline void move_tile(u32 access, const u8* from, u8* to, u32 units, u32 thread, bool swap, const Place& place) {
  switch (access) {
    case 16:
      return move_tile<Vector>(from, to, units, thread, swap, place);
    case 8:
      return move_tile<u64>(from, to, units, thread, swap, place);
    case 4:
      return move_tile<u32>(from, to, units, thread, swap, place);
    case 2:
      return move_tile<std::uint16_t>(from, to, units, thread, swap, place);
    default:
      return move_tile<u8>(from, to, units, thread, swap, place);
  }
}

struct Relayout {
  using Args = RelayoutArgs;
  using Shared = PairTile;
  using Local = NoLocal;
  KVCTS_HD static u64 tiles(const RelayoutArgs& args) { return (args.rows + threads - 1) / threads; }
  KVCTS_HD static void load(const RelayoutArgs& args, u64 tile, u32 thread, PairTile& shared) {
    const u64 number = tile * threads + thread;
    shared.rows[thread] = {-1, 0};
    if (number >= args.rows) return;
    const u64 outer = quotient(args.inner, number), part = quotient(args.outer, outer);
    const Pair p = args.parts[part], o = args.outer_places[outer - part * args.outer.divisor],
               i = args.inner_places[number - outer * args.inner.divisor];
    shared.rows[thread] = {p.from + o.from + i.from, p.to + o.to + i.to};
  }
  KVCTS_HD static void work(const RelayoutArgs& args, u64, u32 thread, const PairTile& tile, NoLocal&) {
    const auto place = [&](u32 number) -> RowPair {
      u32 row, rest;
      if (args.rows_fastest != 0) {
        row = number % threads;
        rest = number / threads;
      } else {
        row = quotient(args.row_pieces, number);
        rest = number - row * args.row_pieces.divisor;
      }
      const RowPair at = tile.rows[row];
      const u32 run = quotient(args.pieces, rest);
      const i64 within = static_cast<i64>(rest - run * args.pieces.divisor) * args.access;
      return {at.from < 0 ? -1 : at.from + args.runs[run].from + within, at.to + args.runs[run].to + within};
    };
    move_tile(args.access, args.from, args.to, threads * args.row_pieces.divisor, thread, args.swap_nibbles != 0, place);
  }
  KVCTS_HD static void finish(const RelayoutArgs&, NoLocal&) {}
};

/// Place of one head of one slot in a paged cache.
KVCTS_HD inline i64 paged_place(const Paged& paged, const Divider& block_size, u64 slot, u64 head) {
  const u64 block = quotient(block_size, slot);
  return static_cast<i64>(block * paged.block + (slot - block * block_size.divisor) * paged.slot + head * paged.head);
}

struct Scatter {
  using Args = ScatterArgs;
  using Shared = PairTile;
  using Local = NoLocal;
  KVCTS_HD static u64 rows(const ScatterArgs& args) { return args.tokens * args.heads.divisor; }
  KVCTS_HD static u64 tiles(const ScatterArgs& args) { return (rows(args) + threads - 1) / threads; }
  KVCTS_HD static void load(const ScatterArgs& args, u64 tile, u32 thread, PairTile& shared) {
    const u64 number = tile * threads + thread;
    shared.rows[thread] = {-1, 0};
    if (number >= rows(args)) return;
    const u64 token = quotient(args.heads, number), head = number - token * args.heads.divisor;
    const i64 slot = args.slot_mapping[token];
    if (slot < 0) return;
    shared.rows[thread] = {static_cast<i64>(token * args.token_stride + head * args.head_stride),
                           paged_place(args.paged, args.block_size, static_cast<u64>(slot), head)};
  }
  KVCTS_HD static void work(const ScatterArgs& args, u64, u32 thread, const PairTile& tile, NoLocal&) {
    const auto place = [&](u32 number) -> RowPair {
      const u32 row = quotient(args.row_pieces, number), rest = number - row * args.row_pieces.divisor;
      const u32 run = quotient(args.pieces, rest);
      const i64 within = static_cast<i64>(rest - run * args.pieces.divisor) * args.access;
      const RowPair at = tile.rows[row];
      return {at.from < 0 ? -1 : at.from + static_cast<i64>(rest) * args.access,
              at.to + static_cast<i64>(run * args.paged.run) + within};
    };
    move_tile(args.access, args.rows, args.cache, threads * args.row_pieces.divisor, thread, false, place);
  }
  KVCTS_HD static void finish(const ScatterArgs&, NoLocal&) {}
};

struct Gather {
  using Args = GatherArgs;
  using Shared = PairTile;
  using Local = NoLocal;
  KVCTS_HD static u64 rows(const GatherArgs& args) { return args.tokens * args.heads.divisor; }
  KVCTS_HD static u64 tiles(const GatherArgs& args) { return (rows(args) + threads - 1) / threads; }
  KVCTS_HD static void load(const GatherArgs& args, u64 tile, u32 thread, PairTile& shared) {
    const u64 number = tile * threads + thread;
    shared.rows[thread] = {-1, 0};
    if (number >= rows(args)) return;
    const u64 token = quotient(args.heads, number), head = number - token * args.heads.divisor;
    u64 low = 0, high = args.requests;  // the last request that begins at or before the token
    while (high - low > 1) {
      const u64 middle = low + (high - low) / 2;
      if (args.first_token[middle] <= token) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const u64 position = token - args.first_token[low], page = quotient(args.block_size, position);
    const std::int32_t block = args.block_table[low * args.table_stride + page];
    if (block < 0) return;
    const u64 slot = static_cast<u64>(block) * args.block_size.divisor + (position - page * args.block_size.divisor);
    shared.rows[thread] = {paged_place(args.paged, args.block_size, slot, head),
                           static_cast<i64>(number * args.row_pieces.divisor * args.access)};
  }
  KVCTS_HD static void work(const GatherArgs& args, u64, u32 thread, const PairTile& tile, NoLocal&) {
    const auto place = [&](u32 number) -> RowPair {
      const u32 row = quotient(args.row_pieces, number), rest = number - row * args.row_pieces.divisor;
      const u32 run = quotient(args.pieces, rest);
      const i64 within = static_cast<i64>(rest - run * args.pieces.divisor) * args.access;
      const RowPair at = tile.rows[row];
      return {at.from < 0 ? -1 : at.from + static_cast<i64>(run * args.paged.run) + within,
              at.to + static_cast<i64>(rest) * args.access};
    };
    move_tile(args.access, args.cache, args.rows, threads * args.row_pieces.divisor, thread, false, place);
  }
  KVCTS_HD static void finish(const GatherArgs&, NoLocal&) {}
};

}  // namespace kvcts::cuda
