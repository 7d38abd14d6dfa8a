// Tags, row by row: written, or regenerated and compared in place. A tile is `threads` rows. Each thread computes one row's
// place and key, once; then all threads write the tile's 16-byte vectors, neighbours side by side.
#pragma once

#include "kernels/cuda/findings.hpp"
#include "kernels/cuda/tiles.hpp"
#include "kernels/tag_math.hpp"

namespace kvcts::cuda {

struct Row {
  u64 key;
  i64 bit;  ///< from the start of the memory; -1: no such row
  u32 or_mask, digit;
};
struct RowTile {
  Row rows[threads];
};

/// Four words of a row's key stream as codes, starting at word `i`.
template <CodeKind kind>
KVCTS_HD inline u32 code_word(const Codes& codes, const Row& row, u32 i) {
  u32 w = (kernels::word(row.key, i) & codes.and_mask) | row.or_mask;
  if (kind == CodeKind::swapped) w = kernels::swap_nibbles(w);
  if (kind == CodeKind::digit16) w |= kernels::scale_digits(16, i, row.digit);
  if (kind == CodeKind::digit32) w |= kernels::scale_digits(32, i, row.digit);
  return w;
}

KVCTS_HD inline u32 any_code_word(const Codes& codes, const Row& row, u32 i) {
  switch (codes.kind) {
    case CodeKind::swapped:
      return code_word<CodeKind::swapped>(codes, row, i);
    case CodeKind::digit16:
      return code_word<CodeKind::digit16>(codes, row, i);
    case CodeKind::digit32:
      return code_word<CodeKind::digit32>(codes, row, i);
    case CodeKind::plain:
      break;
  }
  return code_word<CodeKind::plain>(codes, row, i);
}

KVCTS_HD inline void load_row(const RowsArgs& args, u64 number, Row& row) {
  row.bit = -1;
  if (number >= args.rows) return;
  const u64 outer = quotient(args.inner, number), block = quotient(args.outer, outer), part = quotient(args.blocks, block);
  const u64 i = number - outer * args.inner.divisor, o = outer - block * args.outer.divisor;
  const Part at = args.parts[part];
  const Filled filled = args.filled[block - part * args.blocks.divisor];
  const Place slot = args.slots[args.slots_inner != 0 ? i : o], head = args.heads[args.slots_inner != 0 ? o : i];
  const i64 token = slot.coord - filled.first_slot;
  if (token < 0 || token >= filled.tokens) return;
  const u64 t = static_cast<u64>(filled.first_token + token), h = static_cast<u64>(head.coord);
  row.bit = at.bit + filled.bit + slot.bit + head.bit;
  row.key = kernels::tag_row_key(kernels::tag_base(at.prefix, filled.generation), h, t);
  row.digit = static_cast<u32>(at.digit + h + t) & 3u;
  row.or_mask = args.codes.or_mask;
  if (args.codes.scale != 0 && args.codes.width <= 8) {
    row.or_mask |= kernels::scale_digits(static_cast<int>(args.codes.width), 0, row.digit);
  }
}

/// One 16-byte access of a tile.
struct RowUnit {
  u32 row, run, vector;
};
KVCTS_HD inline RowUnit row_unit(const RowsArgs& args, u32 number) {
  RowUnit unit;
  u32 rest;
  if (args.rows_fastest != 0) {
    unit.row = number % threads;
    rest = number / threads;
  } else {
    unit.row = quotient(args.row_vectors, number);
    rest = number - unit.row * args.row_vectors.divisor;
  }
  unit.run = quotient(args.vectors, rest);
  unit.vector = rest - unit.run * args.vectors.divisor;
  return unit;
}

/// Where a vector lies, which of its bytes belong to the run, and the stream byte of its byte 0 (below 0 only outside the
/// run).
struct RowVector {
  i64 at;
  int low, high;
  i64 stream;
};
KVCTS_HD inline RowVector row_vector(const RowsArgs& args, const Row& row, const RowUnit& unit) {
  const ChannelRun run = args.runs[unit.run];
  const i64 start = (row.bit + run.bit) >> 3;
  const i64 at = (start & ~i64{15}) + 16 * static_cast<i64>(unit.vector);
  const i64 low = start - at, high = low + static_cast<i64>(args.run_bytes);
  return {at, low < 0 ? 0 : static_cast<int>(low), high > 16 ? 16 : static_cast<int>(high), run.stream - low};
}

/// The codes of a whole vector whose stream begins at any byte.
KVCTS_HD inline Vector row_codes(const RowsArgs& args, const Row& row, i64 stream) {
  const u32 i = static_cast<u32>(stream >> 2), shift = 8 * static_cast<u32>(stream & 3);
  const Codes& codes = args.codes;
  const u32 w0 = any_code_word(codes, row, i), w1 = any_code_word(codes, row, i + 1), w2 = any_code_word(codes, row, i + 2),
            w3 = any_code_word(codes, row, i + 3);
  if (shift == 0) return {w0, w1, w2, w3};
  const u32 w4 = any_code_word(codes, row, i + 4);
  return {funnel(w0, w1, shift), funnel(w1, w2, shift), funnel(w2, w3, shift), funnel(w3, w4, shift)};
}

KVCTS_HD inline Vector plain_codes(const Codes& codes, const Row& row, u32 i) {
  return {code_word<CodeKind::plain>(codes, row, i), code_word<CodeKind::plain>(codes, row, i + 1),
          code_word<CodeKind::plain>(codes, row, i + 2), code_word<CodeKind::plain>(codes, row, i + 3)};
}

/// Row, place and first stream word of a unit where every run is whole vectors; `at` < 0: none.
struct WholeUnit {
  u32 row;
  i64 at;
  u32 word;
};
KVCTS_HD inline WholeUnit whole_unit(const RowTile& tile, const RowUnit& unit, const ChannelRun& run) {
  const i64 bit = tile.rows[unit.row].bit;
  return {unit.row, bit < 0 ? -1 : ((bit + run.bit) >> 3) + 16 * static_cast<i64>(unit.vector),
          static_cast<u32>(run.stream >> 2) + 4 * unit.vector};
}

/// Calls work(place) once, where place(number) is the WholeUnit of a unit: without a look-up of its run where rows have one.
template <class Work>
KVCTS_HD inline void with_whole_units(const RowsArgs& args, const RowTile& tile, const Work& work) {
  if (args.rows_fastest == 0 && args.vectors.divisor == args.row_vectors.divisor) {
    const ChannelRun run = args.runs[0];
    work([&](u32 number) {
      const u32 row = quotient(args.row_vectors, number);
      return whole_unit(tile, {row, 0, number - row * args.row_vectors.divisor}, run);
    });
  } else {
    work([&](u32 number) {
      const RowUnit unit = row_unit(args, number);
      return whole_unit(tile, unit, args.runs[unit.run]);
    });
  }
}

struct RowKernel {
  using Args = RowsArgs;
  using Shared = RowTile;
  KVCTS_HD static u64 tiles(const RowsArgs& args) { return (args.rows + threads - 1) / threads; }
  KVCTS_HD static void load(const RowsArgs& args, u64 tile, u32 thread, RowTile& shared) {
    load_row(args, tile * threads + thread, shared.rows[thread]);
  }
  KVCTS_HD static u32 units(const RowsArgs& args) { return threads * args.row_vectors.divisor; }
  KVCTS_HD static bool fast(const RowsArgs& args) { return args.whole != 0 && args.codes.kind == CodeKind::plain; }
};

struct GenerateRows : RowKernel {
  using Local = NoLocal;
  KVCTS_HD static void work(const RowsArgs& args, u64, u32 thread, const RowTile& tile, NoLocal&) {
    if (fast(args)) {
      with_whole_units(args, tile, [&](const auto& place) {
        for (u32 u = thread; u < units(args); u += threads) {
          const WholeUnit unit = place(u);
          if (unit.at >= 0) store16(args.memory + unit.at, plain_codes(args.codes, tile.rows[unit.row], unit.word));
        }
      });
      return;
    }
    for (u32 u = thread; u < units(args); u += threads) {
      const RowUnit unit = row_unit(args, u);
      const Row& row = tile.rows[unit.row];
      if (row.bit < 0) continue;
      const RowVector v = row_vector(args, row, unit);
      if (v.low >= v.high) continue;
      const Vector codes = row_codes(args, row, v.stream);
      if (v.low == 0 && v.high == 16) {
        store16(args.memory + v.at, codes);
      } else {
        store_part(args.memory + v.at, codes, v.low, v.high);
      }
    }
  }
  KVCTS_HD static void finish(const RowsArgs&, NoLocal&) {}
};

struct CheckRows : RowKernel {
  using Local = Tally;
  /// Loads that a thread issues before it uses the first.
  static constexpr u32 ahead = 4;

  KVCTS_HD static void work(const RowsArgs& args, u64, u32 thread, const RowTile& tile, Tally& tally) {
    if (fast(args)) {
      with_whole_units(args, tile, [&](const auto& place) {
        for (u32 u = thread; u < units(args); u += ahead * threads) {
          WholeUnit unit[ahead];
          Vector seen[ahead];
#if defined(__CUDACC__)
#pragma unroll
#endif
          for (u32 k = 0; k < ahead; ++k) {
            const u32 number = u + k * threads;
            unit[k] = number < units(args) ? place(number) : WholeUnit{0, -1, 0};
            seen[k] = unit[k].at < 0 ? Vector{} : load16(args.memory + unit[k].at);
          }
#if defined(__CUDACC__)
#pragma unroll
#endif
          for (u32 k = 0; k < ahead; ++k) {
            if (unit[k].at < 0) continue;
            const Vector codes = plain_codes(args.codes, tile.rows[unit[k].row], unit[k].word);
            note_vector(args.probe, tally, static_cast<u64>(unit[k].at), difference(seen[k], codes));
          }
        }
      });
      return;
    }
    for (u32 u = thread; u < units(args); u += threads) {
      const RowUnit unit = row_unit(args, u);
      const Row& row = tile.rows[unit.row];
      if (row.bit < 0) continue;
      const RowVector v = row_vector(args, row, unit);
      if (v.low >= v.high) continue;
      const Vector wrong = difference(load16(args.memory + v.at), row_codes(args, row, v.stream));
      note_vector(args.probe, tally, static_cast<u64>(v.at), masked(wrong, v.low, v.high));
    }
  }
  KVCTS_HD static void finish(const RowsArgs& args, Tally& tally) { report(args.probe, tally); }
};

/// Code by code, at any bit: 4-bit codes that share bytes with other rows. Runs are single codes here; `stream` is the
/// channel.
struct GenerateCodes : RowKernel {
  using Local = NoLocal;
  KVCTS_HD static void work(const RowsArgs& args, u64, u32 thread, const RowTile& tile, NoLocal&) {
    const Codes& codes = args.codes;
    const u32 mask = (u32{1} << codes.width) - 1;  // 4, 8 or 16 bits
    for (u32 u = thread; u < units(args); u += threads) {
      const RowUnit unit = row_unit(args, u);
      const Row& row = tile.rows[unit.row];
      if (row.bit < 0) continue;
      const ChannelRun run = args.runs[unit.run];
      const kernels::CodeRule rule{static_cast<int>(codes.width), codes.and_mask & mask, codes.or_mask & mask};
      const u32 code = kernels::code_of(rule, row.key, static_cast<u64>(run.stream), codes.scale != 0, row.digit);
      i64 bit = row.bit + run.bit;
      if (codes.kind == CodeKind::swapped) bit ^= 4;
      const u32 shift = static_cast<u32>(bit & 31);
      put_bits_atomically(reinterpret_cast<u32*>(args.memory) + (bit >> 5), mask << shift, code << shift);
    }
  }
  KVCTS_HD static void finish(const RowsArgs&, NoLocal&) {}
};

}  // namespace kvcts::cuda
