#include "kernels/relayout/moves.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvcts::kernels::relayout {
namespace {

using u8 = std::uint8_t;

#define KVCTS_BODY [[gnu::always_inline]] inline

template <std::size_t bytes>
KVCTS_BODY void copy_fixed(u8* to, const u8* from, const Runs& runs) {
  for (std::size_t k = 0; k < runs.n; ++k, to += runs.to, from += runs.from) std::memcpy(to, from, bytes);
}

/// Runs of a cache line or so are too short for a call of memcpy each.
KVCTS_BODY void copy_runs(u8* to, const u8* from, const Runs& runs) {
  switch (runs.bytes) {
    case 1:
      return copy_fixed<1>(to, from, runs);
    case 2:
      return copy_fixed<2>(to, from, runs);
    case 4:
      return copy_fixed<4>(to, from, runs);
    case 8:
      return copy_fixed<8>(to, from, runs);
    case 16:
      return copy_fixed<16>(to, from, runs);
    case 32:
      return copy_fixed<32>(to, from, runs);
    case 64:
      return copy_fixed<64>(to, from, runs);
    case 128:
      return copy_fixed<128>(to, from, runs);
    case 256:
      return copy_fixed<256>(to, from, runs);
    default:
      for (std::size_t k = 0; k < runs.n; ++k, to += runs.to, from += runs.from) std::memcpy(to, from, runs.bytes);
  }
}

KVCTS_BODY void swap_runs(u8* to, const u8* from, const Runs& runs) {
  for (std::size_t k = 0; k < runs.n; ++k, to += runs.to, from += runs.from) {
    for (std::size_t i = 0; i < runs.bytes; ++i) to[i] = static_cast<u8>((from[i] << 4) | (from[i] >> 4));
  }
}

// Transposition of square tiles in 16-byte vectors: each step interleaves rows that are half a tile apart, the last leaves
// columns. Words of 1, 2, 4, 8 bytes; 16 / size rows.
using V = u8 __attribute__((vector_size(16)));

template <std::size_t size>
KVCTS_BODY V low(V a, V b) {
  if constexpr (size == 1) return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  if constexpr (size == 2) return __builtin_shufflevector(a, b, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
  if constexpr (size == 4) return __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
}
template <std::size_t size>
KVCTS_BODY V high(V a, V b) {
  if constexpr (size == 1) return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  if constexpr (size == 2) return __builtin_shufflevector(a, b, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
  if constexpr (size == 4) return __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  return __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}

/// Perfect shuffles: after log2(n) of them row r of the result is column r.
template <std::size_t size, std::size_t n>
KVCTS_BODY void interleave(V (&rows)[n]) {
  V next[n];
  for (std::size_t round = 1; round < n; round *= 2) {
    for (std::size_t r = 0; r < n / 2; ++r) {
      next[2 * r] = low<size>(rows[r], rows[r + n / 2]);
      next[2 * r + 1] = high<size>(rows[r], rows[r + n / 2]);
    }
    for (std::size_t r = 0; r < n; ++r) rows[r] = next[r];
  }
}

template <std::size_t size>
KVCTS_BODY void transpose_tile(u8* to, const u8* from, const Tile& tile) {
  constexpr std::size_t n = 16 / size;
  const auto at = [](std::size_t index, std::int64_t stride) { return static_cast<std::ptrdiff_t>(index) * stride; };
  std::size_t c = 0;
  for (; c + n <= tile.columns; c += n) {
    std::size_t r = 0;
    for (; r + n <= tile.rows; r += n) {
      V v[n];
      const u8* source = from + at(r, tile.from_row) + c * size;
      for (std::size_t k = 0; k < n; ++k) std::memcpy(&v[k], source + at(k, tile.from_row), 16);
      interleave<size, n>(v);
      u8* target = to + at(c, tile.to_column) + r * size;
      for (std::size_t k = 0; k < n; ++k) std::memcpy(target + at(k, tile.to_column), &v[k], 16);
    }
    for (; r < tile.rows; ++r) {
      for (std::size_t k = c; k < c + n; ++k) {
        std::memcpy(to + at(k, tile.to_column) + r * size, from + at(r, tile.from_row) + k * size, size);
      }
    }
  }
  for (; c < tile.columns; ++c) {
    for (std::size_t r = 0; r < tile.rows; ++r) {
      std::memcpy(to + at(c, tile.to_column) + r * size, from + at(r, tile.from_row) + c * size, size);
    }
  }
}

struct Baseline {
  static void copy(u8* to, const u8* from, const Runs& runs) { copy_runs(to, from, runs); }
  static void stream(u8* to, const u8* from, const Runs& runs) { copy_runs(to, from, runs); }
  static void swap(u8* to, const u8* from, const Runs& runs) { swap_runs(to, from, runs); }
  template <std::size_t size>
  static void transpose(u8* to, const u8* from, const Tile& tile) {
    transpose_tile<size>(to, from, tile);
  }
  static void drain() {}
};

#if defined(__x86_64__)
#define KVCTS_AVX2 gnu::target("avx2,bmi2")
#define KVCTS_AVX512 gnu::target("avx512f,avx512bw,avx512vl,bmi2,prefer-vector-width=512")

/// Whole lines past the caches, what lies before and after them through.
template <std::size_t line, typename Line>
KVCTS_BODY void stream_runs(u8* to, const u8* from, const Runs& runs, Line put) {
  for (std::size_t k = 0; k < runs.n; ++k, to += runs.to, from += runs.from) {
    const std::size_t head = std::min(runs.bytes, static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(to) % line));
    if (head != 0) std::memcpy(to, from, head);
    std::size_t i = head;
    for (; i + line <= runs.bytes; i += line) put(to + i, from + i);
    if (i != runs.bytes) std::memcpy(to + i, from + i, runs.bytes - i);
  }
}

struct Avx2 {
  [[KVCTS_AVX2]] static void copy(u8* to, const u8* from, const Runs& runs) { copy_runs(to, from, runs); }
  [[KVCTS_AVX2]] static void put(u8* to, const u8* from) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32)));
  }
  [[KVCTS_AVX2, gnu::flatten]] static void stream(u8* to, const u8* from, const Runs& runs) {
    stream_runs<64>(to, from, runs, put);
  }
  [[KVCTS_AVX2]] static void swap(u8* to, const u8* from, const Runs& runs) { swap_runs(to, from, runs); }
  template <std::size_t size>
  [[KVCTS_AVX2]] static void transpose(u8* to, const u8* from, const Tile& tile) {
    transpose_tile<size>(to, from, tile);
  }
  static void drain() { _mm_sfence(); }
};

struct Avx512 {
  [[KVCTS_AVX512]] static void copy(u8* to, const u8* from, const Runs& runs) { copy_runs(to, from, runs); }
  [[KVCTS_AVX512]] static void put(u8* to, const u8* from) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
  [[KVCTS_AVX512, gnu::flatten]] static void stream(u8* to, const u8* from, const Runs& runs) {
    stream_runs<64>(to, from, runs, put);
  }
  [[KVCTS_AVX512]] static void swap(u8* to, const u8* from, const Runs& runs) { swap_runs(to, from, runs); }
  template <std::size_t size>
  [[KVCTS_AVX512]] static void transpose(u8* to, const u8* from, const Tile& tile) {
    transpose_tile<size>(to, from, tile);
  }
  static void drain() { _mm_sfence(); }
};
#endif

template <typename Set>
constexpr Moves moves_of(std::string_view name) {
  return {name,
          &Set::copy,
          &Set::stream,
          &Set::swap,
          {&Set::template transpose<1>, &Set::template transpose<2>, &Set::template transpose<4>, &Set::template transpose<8>},
          &Set::drain};
}

}  // namespace

#if defined(__x86_64__)
std::span<const Moves> usable_moves() {
  static constexpr std::array sets{moves_of<Baseline>("baseline"), moves_of<Avx2>("avx2"), moves_of<Avx512>("avx512")};
  static const std::size_t usable = [] {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi2") != 0;
    const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                        __builtin_cpu_supports("avx512vl") != 0;
    return !avx2 ? 1 : avx512 ? 3 : 2;
  }();
  return std::span(sets).first(usable);
}
#else
std::span<const Moves> usable_moves() {
  static constexpr std::array sets{moves_of<Baseline>("baseline")};
  return sets;
}
#endif

const Moves& best_moves() {
  static const Moves& best = usable_moves().back();
  return best;
}

}  // namespace kvcts::kernels::relayout
