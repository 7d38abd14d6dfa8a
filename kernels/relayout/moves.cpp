#include "kernels/relayout/moves.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

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

/// Runs of about a cache line are too short for a memcpy call each.
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

// Transposition of square tiles of 16-byte rows: each step interleaves rows half a tile apart, and the last leaves columns.
// Words of 1, 2, 4, 8 bytes, 16 / size rows. Wider vectors hold two or four tiles side by side.

/// GCC drops a vector_size that depends on a template argument, hence one by one.
template <std::size_t width>
struct Vector;
template <>
struct Vector<16> {
  using V = u8 __attribute__((vector_size(16)));
};
template <>
struct Vector<32> {
  using V = u8 __attribute__((vector_size(32)));
};
template <>
struct Vector<64> {
  using V = u8 __attribute__((vector_size(64)));
};

/// Which byte of the rows a and b (b's from `width` on) goes to byte i when the low or high halves of each 16 are
/// interleaved.
template <std::size_t width, std::size_t size, bool high>
constexpr int interleaved(std::size_t i) {
  const std::size_t word = i % 16 / size, half = high ? 8 : 0;
  return static_cast<int>((word % 2) * width + i / 16 * 16 + half + word / 2 * size + i % size);
}

template <std::size_t width, std::size_t size, bool high, std::size_t... i, typename V>
KVCTS_BODY void unpack(V& out, const V& a, const V& b, std::index_sequence<i...>) {
  out = __builtin_shufflevector(a, b, interleaved<width, size, high>(i)...);
}

/// After log2(n) rounds row r holds column r of each tile.
template <std::size_t width, std::size_t size, std::size_t n, typename V>
KVCTS_BODY void interleave(V (&rows)[n]) {
  constexpr auto bytes = std::make_index_sequence<width>();
  V next[n];
  for (std::size_t round = 1; round < n; round *= 2) {
    for (std::size_t r = 0; r < n / 2; ++r) {
      unpack<width, size, false>(next[2 * r], rows[r], rows[r + n / 2], bytes);
      unpack<width, size, true>(next[2 * r + 1], rows[r], rows[r + n / 2], bytes);
    }
    for (std::size_t r = 0; r < n; ++r) rows[r] = next[r];
  }
}

constexpr std::ptrdiff_t apart(std::size_t index, std::int64_t stride) {
  return static_cast<std::ptrdiff_t>(index) * stride;
}

template <std::size_t size>
KVCTS_BODY void transpose_words(u8* to, const u8* from, const Tile& tile, std::size_t first_row, std::size_t column,
                                std::size_t columns) {
  for (std::size_t c = column; c < column + columns; ++c) {
    for (std::size_t r = first_row; r < tile.rows; ++r) {
      std::memcpy(to + apart(c, tile.to_column) + r * size, from + apart(r, tile.from_row) + c * size, size);
    }
  }
}

/// Columns [column, column + width / size) of all rows.
template <std::size_t width, std::size_t size>
KVCTS_BODY void transpose_strip(u8* to, const u8* from, const Tile& tile, std::size_t column) {
  constexpr std::size_t n = 16 / size;
  std::size_t r = 0;
  for (; r + n <= tile.rows; r += n) {
    typename Vector<width>::V v[n];
    const u8* source = from + apart(r, tile.from_row) + column * size;
    for (std::size_t k = 0; k < n; ++k) std::memcpy(&v[k], source + apart(k, tile.from_row), width);
    interleave<width, size, n>(v);
    for (std::size_t part = 0; part < width / 16; ++part) {
      u8* target = to + apart(column + part * n, tile.to_column) + r * size;
      for (std::size_t k = 0; k < n; ++k)
        std::memcpy(target + apart(k, tile.to_column), reinterpret_cast<const u8*>(&v[k]) + 16 * part, 16);
    }
  }
  transpose_words<size>(to, from, tile, r, column, width / size);
}

template <std::size_t width, std::size_t size>
KVCTS_BODY void transpose_tile(u8* to, const u8* from, const Tile& tile) {
  std::size_t c = 0;
  for (; c + width / size <= tile.columns; c += width / size) transpose_strip<width, size>(to, from, tile, c);
  if constexpr (width > 16) {
    for (; c + 16 / size <= tile.columns; c += 16 / size) transpose_strip<16, size>(to, from, tile, c);
  }
  transpose_words<size>(to, from, tile, 0, c, tile.columns - c);
}

struct Baseline {
  static void copy(u8* to, const u8* from, const Runs& runs) { copy_runs(to, from, runs); }
  static void stream(u8* to, const u8* from, const Runs& runs) { copy_runs(to, from, runs); }
  static void swap(u8* to, const u8* from, const Runs& runs) { swap_runs(to, from, runs); }
  template <std::size_t size>
  static void transpose(u8* to, const u8* from, const Tile& tile) {
    transpose_tile<16, size>(to, from, tile);
  }
  static void drain() {}
};

#if defined(__x86_64__)
#define KVCTS_AVX2 gnu::target("avx2,bmi2")
#define KVCTS_AVX512 gnu::target("avx512f,avx512bw,avx512vl,bmi2,prefer-vector-width=512")

/// Prefetch distance of a read that walks through memory. Scattered writes stop the processor's own prefetching.
constexpr std::size_t ahead = 2048;

/// Writes whole lines past the caches, and the bytes before and after them through.
template <std::size_t line, typename Line>
KVCTS_BODY void stream_runs(u8* to, const u8* from, const Runs& runs, Line put) {
  for (std::size_t k = 0; k < runs.n; ++k, to += runs.to, from += runs.from) {
    const std::size_t head = std::min(runs.bytes, static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(to) % line));
    if (head != 0) std::memcpy(to, from, head);
    std::size_t i = head;
    for (; i + line <= runs.bytes; i += line) {
      __builtin_prefetch(from + i + ahead);
      put(to + i, from + i);
    }
    if (i != runs.bytes) std::memcpy(to + i, from + i, runs.bytes - i);
  }
}

struct Avx2 {
  [[KVCTS_AVX2]] static void copy(u8* to, const u8* from, const Runs& runs) { copy_runs(to, from, runs); }
  [[KVCTS_AVX2]] static void put(u8* to, const u8* from) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32)));
  }
  [[KVCTS_AVX2, gnu::flatten]] static void stream(u8* to, const u8* from, const Runs& runs) {
    stream_runs<64>(to, from, runs, put);
  }
  [[KVCTS_AVX2]] static void swap(u8* to, const u8* from, const Runs& runs) { swap_runs(to, from, runs); }
  template <std::size_t size>
  [[KVCTS_AVX2]] static void transpose(u8* to, const u8* from, const Tile& tile) {
    transpose_tile<32, size>(to, from, tile);
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
    transpose_tile<64, size>(to, from, tile);
  }
  static void drain() { _mm_sfence(); }
};
#endif

template <typename Set>
constexpr Moves moves_of(std::string_view name) {
  return {
      name,
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
