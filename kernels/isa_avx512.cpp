#include "kernels/isa_avx512.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <array>

#include "kernels/isa_loops.hpp"

// A function is inlined only into functions of the same target, so every one here names it.
#define KVCTS_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi2,prefer-vector-width=512")]]
#define KVCTS_AVX512_INLINE KVCTS_AVX512 [[gnu::always_inline]] inline

namespace kvcts::kernels {
namespace {

constexpr std::size_t lanes = 16;  // words in a vector

/// 0, 1, ... 15 times the counter's step.
constexpr std::array<std::uint32_t, lanes> steps = [] {
  std::array<std::uint32_t, lanes> out{};
  for (std::uint32_t k = 0; k < lanes; ++k) out[k] = k * counter_step;
  return out;
}();
constexpr std::array<std::uint32_t, lanes> indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// loops::lane() of sixteen words; `i` counts for digit16 and digit32 only.
template <LaneKind kind>
KVCTS_AVX512_INLINE __m512i lane(__m512i counter, __m512i high, __m512i i, __m512i and_mask, __m512i or_mask) {
  __m512i x = _mm512_xor_si512(counter, _mm512_srli_epi32(counter, 16));
  x = _mm512_mullo_epi32(x, _mm512_set1_epi32(0x21f0aaad));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
  x = _mm512_add_epi32(x, high);
  x = _mm512_mullo_epi32(x, _mm512_set1_epi32(0x735a2d97));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
  if constexpr (kind == LaneKind::digit32) {
    const __m512i digits = _mm512_set1_epi32(static_cast<int>(scale_digit_mask));
    const __m512i digit = _mm512_and_si512(_mm512_add_epi32(or_mask, _mm512_slli_epi32(i, 2)), digits);
    return _mm512_or_si512(_mm512_and_si512(x, and_mask), _mm512_or_si512(_mm512_andnot_si512(digits, or_mask), digit));
  }
  x = _mm512_or_si512(_mm512_and_si512(x, and_mask), or_mask);
  if constexpr (kind == LaneKind::digit16) {
    const __mmask16 odd = _mm512_test_epi32_mask(i, _mm512_set1_epi32(1));
    x = _mm512_mask_xor_epi32(x, odd, x, _mm512_set1_epi32(0x00080008));
  }
  if constexpr (kind == LaneKind::swapped) {
    const __m512i low = _mm512_set1_epi32(0x0f0f0f0f);
    x = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(x, low), 4), _mm512_and_si512(_mm512_srli_epi32(x, 4), low));
  }
  return x;
}

KVCTS_AVX512_INLINE __m512i set1(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }

/// Rows in sequence: vector by vector, the last one under a mask of bytes.
template <LaneKind kind>
KVCTS_AVX512_INLINE void long_rows(const RowKeys& keys, const RowShape& shape, std::uint32_t word, std::uint8_t* out) {
  const std::size_t whole = shape.bytes / 64, rest = shape.bytes % 64;
  const __mmask64 tail = rest == 0 ? 0 : ~std::uint64_t{0} >> (64 - rest);
  const __m512i and_mask = set1(shape.and_mask), advance = set1(static_cast<std::uint32_t>(lanes) * counter_step);
  const __m512i sixteen = set1(lanes);
  const __m512i first = _mm512_add_epi32(_mm512_loadu_si512(steps.data()), set1(word * counter_step));
  const __m512i first_i = _mm512_add_epi32(_mm512_loadu_si512(indices.data()), set1(word));
  for (std::size_t r = 0; r < keys.rows; ++r, out += shape.pitch) {
    __m512i counter = _mm512_add_epi32(first, set1(keys.low[r])), i = first_i;
    const __m512i high = set1(keys.high[r]), or_mask = set1(keys.or_mask[r]);
    std::uint8_t* to = out;
    for (std::size_t k = 0; k < whole; ++k, to += 64) {
      _mm512_storeu_si512(to, lane<kind>(counter, high, i, and_mask, or_mask));
      counter = _mm512_add_epi32(counter, advance);
      i = _mm512_add_epi32(i, sixteen);
    }
    if (tail != 0) _mm512_mask_storeu_epi8(to, tail, lane<kind>(counter, high, i, and_mask, or_mask));
  }
}

/// Entries row[0], row[1], ... of the first sixteen (those in `there`), once per lane.
KVCTS_AVX512_INLINE __m512i spread(const std::uint32_t* from, __mmask16 there, __m512i row) {
  return _mm512_permutexvar_epi32(row, _mm512_maskz_loadu_epi32(there, from));
}

/// Which of the rows of a vector, and which of a row's words, a lane holds: for rows of 1, 2, 4 or 8 words.
template <std::uint32_t words>
struct ShortRows {
  std::uint32_t row[lanes]{}, word[lanes]{}, step[lanes]{};
  constexpr ShortRows() {
    for (std::uint32_t k = 0; k < lanes; ++k) row[k] = k / words, word[k] = k % words, step[k] = k % words * counter_step;
  }
};

/// Short rows that follow each other without a gap: 16 / words rows per vector.
template <LaneKind kind, std::uint32_t words>
KVCTS_AVX512_INLINE void short_rows(const RowKeys& keys, const RowShape& shape, std::uint8_t* out) {
  constexpr std::size_t together = lanes / words;
  static constexpr ShortRows<words> which;
  const __m512i row = _mm512_loadu_si512(which.row), and_mask = set1(shape.and_mask);
  const __m512i first = _mm512_add_epi32(_mm512_loadu_si512(which.step), set1(shape.first_word * counter_step));
  const __m512i first_i = _mm512_add_epi32(_mm512_loadu_si512(which.word), set1(shape.first_word));
  const __m512i advance = set1(shape.run_words * counter_step), advance_i = set1(shape.run_words);
  for (std::size_t r = 0; r < keys.rows; r += together, out += 64) {
    const std::size_t n = std::min(together, keys.rows - r);
    const auto there = static_cast<__mmask16>((1u << n) - 1);
    const auto words_there = static_cast<__mmask16>((std::uint64_t{1} << (n * words)) - 1);
    const __m512i high = spread(keys.high + r, there, row), or_mask = spread(keys.or_mask + r, there, row);
    __m512i counter = _mm512_add_epi32(spread(keys.low + r, there, row), first), i = first_i;
    std::uint8_t* to = out;
    for (std::size_t k = 0; k < shape.runs; ++k, to += shape.run_pitch) {
      _mm512_mask_storeu_epi32(to, words_there, lane<kind>(counter, high, i, and_mask, or_mask));
      counter = _mm512_add_epi32(counter, advance);
      i = _mm512_add_epi32(i, advance_i);
    }
  }
}

/// nibble_pairs() leaves channel c of a pair of rows in byte `place` of eight.
constexpr std::size_t place(std::size_t c) { return c % 2 * 4 + c / 2; }

/// From sixteen words, of which lane k is word k / rows of row k % rows, to codes channel by channel: the origin of each, in
/// units of 16 bits, of 8 bits, or of the bytes that nibble_pairs() makes.
template <int width, std::size_t rows>
struct Apart {
  std::uint16_t halves[32]{};
  std::uint8_t bytes[64]{};
  constexpr Apart() {
    constexpr std::size_t codes = 32 / width;
    for (std::size_t k = 0; k < lanes * codes; ++k) {
      const std::size_t channel = k / rows, row = k % rows, lane = channel / codes * rows + row;
      if constexpr (width == 16) halves[k] = static_cast<std::uint16_t>(lane * 2 + channel % codes);
      if constexpr (width == 8) bytes[k] = static_cast<std::uint8_t>(lane * 4 + channel % codes);
      if constexpr (width == 4) bytes[k / 2] = static_cast<std::uint8_t>(lane / 2 * 8 + place(channel % codes));
    }
  }
};

/// Eight channels of rows 2p and 2p + 1 (a 64-bit lane) become eight bytes, each both rows' nibbles of one channel.
KVCTS_AVX512_INLINE __m512i nibble_pairs(__m512i x, bool high_first) {
  const __m512i nibble = _mm512_set1_epi32(0x0f0f0f0f), low = _mm512_set1_epi64(0xffffffff);
  const __m512i a = _mm512_and_si512(x, nibble), b = _mm512_and_si512(_mm512_srli_epi32(x, 4), nibble);
  const __m512i even = high_first ? _mm512_or_si512(_mm512_slli_epi64(a, 4), _mm512_srli_epi64(a, 32))
                                  : _mm512_or_si512(a, _mm512_srli_epi64(a, 28));
  const __m512i odd = high_first ? _mm512_or_si512(_mm512_slli_epi64(b, 4), _mm512_srli_epi64(b, 32))
                                 : _mm512_or_si512(b, _mm512_srli_epi64(b, 28));
  return _mm512_or_si512(_mm512_and_si512(even, low), _mm512_slli_epi64(odd, 32));
}

/// The codes of sixteen words (16 / rows words of each row, word by word), channel by channel.
template <int width, std::size_t rows>
KVCTS_AVX512_INLINE __m512i apart(__m512i x, bool high_first) {
  static constexpr Apart<width, rows> from;
  if constexpr (width == 16) return _mm512_permutexvar_epi16(_mm512_loadu_si512(from.halves), x);
  if constexpr (width == 8) return _mm512_permutexvar_epi8(_mm512_loadu_si512(from.bytes), x);
  if constexpr (width == 4) return _mm512_permutexvar_epi8(_mm512_loadu_si512(from.bytes), nibble_pairs(x, high_first));
  return x;
}

/// Stores the first `n` bytes of each 64 / pieces bytes, `column` apart.
template <int pieces>
KVCTS_AVX512_INLINE void store_apart(__m512i x, std::size_t n, std::uint8_t* out, std::size_t column) {
  const __mmask64 there = ~std::uint64_t{0} >> (64 - n);
  if constexpr (pieces == 1) {
    _mm512_mask_storeu_epi8(out, there, x);
  } else if constexpr (pieces == 2) {
    _mm256_mask_storeu_epi8(out, static_cast<__mmask32>(there), _mm512_castsi512_si256(x));
    _mm256_mask_storeu_epi8(out + column, static_cast<__mmask32>(there), _mm512_extracti64x4_epi64(x, 1));
  } else if constexpr (pieces == 4) {
    _mm_mask_storeu_epi8(out, static_cast<__mmask16>(there), _mm512_castsi512_si128(x));
    _mm_mask_storeu_epi8(out + column, static_cast<__mmask16>(there), _mm512_extracti32x4_epi32(x, 1));
    _mm_mask_storeu_epi8(out + 2 * column, static_cast<__mmask16>(there), _mm512_extracti32x4_epi32(x, 2));
    _mm_mask_storeu_epi8(out + 3 * column, static_cast<__mmask16>(there), _mm512_extracti32x4_epi32(x, 3));
  } else {
    alignas(64) std::uint8_t bytes[64];
    _mm512_store_si512(bytes, x);
    for (std::size_t c = 0; c < 8; ++c) {
      if (n == 8) {
        std::memcpy(out + c * column, bytes + 8 * c, 8);
      } else {
        std::memcpy(out + c * column, bytes + 8 * c, n);
      }
    }
  }
}

/// Any number of rows, sixteen at a time.
template <LaneKind kind, int width>
KVCTS_AVX512_INLINE void many_columns(const RowKeys& keys, const ColumnShape& shape, std::uint8_t* out) {
  const std::size_t column = keys.rows * width / 8, a_word = 32 / width * column;
  const __m512i and_mask = set1(shape.and_mask), step = set1(counter_step), one = set1(1);
  for (std::size_t r = 0; r < keys.rows; r += lanes) {
    const std::size_t n = std::min(lanes, keys.rows - r);
    const auto there = static_cast<__mmask16>((1u << n) - 1);
    const __m512i high = _mm512_maskz_loadu_epi32(there, keys.high + r);
    const __m512i or_mask = _mm512_maskz_loadu_epi32(there, keys.or_mask + r);
    __m512i counter = _mm512_add_epi32(_mm512_maskz_loadu_epi32(there, keys.low + r), set1(shape.first_word * counter_step));
    __m512i i = set1(shape.first_word);
    std::uint8_t* to = out + r * width / 8;
    for (std::size_t w = 0; w < shape.words; ++w, to += a_word) {
      const __m512i x = apart<width, lanes>(lane<kind>(counter, high, i, and_mask, or_mask), shape.high_nibble_first);
      store_apart<32 / width>(x, n * width / 8, to, column);
      counter = _mm512_add_epi32(counter, step);
      i = _mm512_add_epi32(i, one);
    }
  }
}

/// Exactly 16, 8 or 4 rows: whole vectors of 1, 2 or 4 words of each.
template <LaneKind kind, int width, std::size_t rows>
KVCTS_AVX512_INLINE void few_columns(const RowKeys& keys, const ColumnShape& shape, std::uint8_t* out) {
  constexpr std::size_t words = lanes / rows;
  alignas(64) std::uint32_t row[lanes], word[lanes];
  for (std::uint32_t k = 0; k < lanes; ++k) row[k] = k % rows, word[k] = k / rows;
  const __m512i of_row = _mm512_load_si512(row), and_mask = set1(shape.and_mask);
  const auto there = static_cast<__mmask16>((1u << rows) - 1);
  const __m512i high = spread(keys.high, there, of_row), or_mask = spread(keys.or_mask, there, of_row);
  __m512i i = _mm512_add_epi32(_mm512_load_si512(word), set1(shape.first_word));
  __m512i counter = _mm512_add_epi32(spread(keys.low, there, of_row), _mm512_mullo_epi32(i, set1(counter_step)));
  const __m512i step = set1(static_cast<std::uint32_t>(words) * counter_step), some = set1(words);
  for (std::size_t w = 0; w < shape.words; w += words, out += 64) {
    const __m512i x = apart<width, rows>(lane<kind>(counter, high, i, and_mask, or_mask), shape.high_nibble_first);
    const std::size_t left = (shape.words - w) * rows;
    if (left >= lanes) {
      _mm512_storeu_si512(out, x);
    } else {
      _mm512_mask_storeu_epi32(out, static_cast<__mmask16>((1u << left) - 1), x);
    }
    counter = _mm512_add_epi32(counter, step);
    i = _mm512_add_epi32(i, some);
  }
}

template <LaneKind kind, int width>
KVCTS_AVX512_INLINE void columns_of(const RowKeys& keys, const ColumnShape& shape, std::uint8_t* out) {
  if (keys.rows == 16) return few_columns<kind, width, 16>(keys, shape, out);
  if (keys.rows == 8) return few_columns<kind, width, 8>(keys, shape, out);
  if (keys.rows == 4) return few_columns<kind, width, 4>(keys, shape, out);
  many_columns<kind, width>(keys, shape, out);
}

}  // namespace

template <LaneKind kind>
KVCTS_AVX512 void Avx512::rows(const RowKeys& keys, const RowShape& shape, std::uint8_t* out) {
  if (shape.pitch == static_cast<std::ptrdiff_t>(shape.bytes)) {
    if (shape.bytes == 4) return short_rows<kind, 1>(keys, shape, out);
    if (shape.bytes == 8) return short_rows<kind, 2>(keys, shape, out);
    if (shape.bytes == 16) return short_rows<kind, 4>(keys, shape, out);
    if (shape.bytes == 32) return short_rows<kind, 8>(keys, shape, out);
  }
  std::uint32_t word = shape.first_word;
  for (std::size_t k = 0; k < shape.runs; ++k, word += shape.run_words, out += shape.run_pitch) {
    long_rows<kind>(keys, shape, word, out);
  }
}

template <LaneKind kind>
KVCTS_AVX512 void Avx512::columns(const RowKeys& keys, const ColumnShape& shape, std::uint8_t* out) {
  if (shape.width == 32) return columns_of<kind, 32>(keys, shape, out);
  if (shape.width == 16) return columns_of<kind, 16>(keys, shape, out);
  if (shape.width == 8) return columns_of<kind, 8>(keys, shape, out);
  columns_of<kind, 4>(keys, shape, out);
}

KVCTS_AVX512 void Avx512::keys(const std::uint64_t* states, std::size_t n, std::uint32_t* low, std::uint32_t* high) {
  loops::keys(states, n, low, high);
}

KVCTS_AVX512 std::size_t Avx512::count(const std::uint8_t* a, const std::uint8_t* b, std::size_t n) {
  return loops::count(a, b, n);
}

KVCTS_AVX512 bool Avx512::equal(const std::uint8_t* seen, const std::uint8_t* tile, const Pieces& pieces) {
  const std::size_t whole = pieces.bytes / 64 * 64, rest = pieces.bytes % 64;
  const __mmask64 tail = rest == 0 ? 0 : ~std::uint64_t{0} >> (64 - rest);
  __m512i different = _mm512_setzero_si512();
  for (std::size_t o = 0; o < pieces.outer; ++o) {
    const std::uint8_t* at = seen + static_cast<std::int64_t>(o) * pieces.outer_pitch;
    for (std::size_t k = 0; k < pieces.count; ++k, at += pieces.pitch, tile += pieces.bytes) {
      for (std::size_t b = 0; b < whole; b += 64) {
        const __m512i apart = _mm512_xor_si512(_mm512_loadu_si512(at + b), _mm512_loadu_si512(tile + b));
        different = _mm512_or_si512(different, apart);
      }
      if (tail != 0) {
        const __m512i apart =
            _mm512_xor_si512(_mm512_maskz_loadu_epi8(tail, at + whole), _mm512_maskz_loadu_epi8(tail, tile + whole));
        different = _mm512_or_si512(different, apart);
      }
    }
  }
  return _mm512_test_epi64_mask(different, different) == 0;
}

KVCTS_AVX512 void Avx512::stream(std::uint8_t* to, const std::uint8_t* from, std::size_t n) {
  std::size_t k = std::min(n, (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, k);
  for (; k + 64 <= n; k += 64) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + k), _mm512_loadu_si512(from + k));
  std::memcpy(to + k, from + k, n - k);
}

void Avx512::drain() { _mm_sfence(); }

template void Avx512::rows<LaneKind::plain>(const RowKeys&, const RowShape&, std::uint8_t*);
template void Avx512::rows<LaneKind::swapped>(const RowKeys&, const RowShape&, std::uint8_t*);
template void Avx512::rows<LaneKind::digit16>(const RowKeys&, const RowShape&, std::uint8_t*);
template void Avx512::rows<LaneKind::digit32>(const RowKeys&, const RowShape&, std::uint8_t*);
template void Avx512::columns<LaneKind::plain>(const RowKeys&, const ColumnShape&, std::uint8_t*);
template void Avx512::columns<LaneKind::digit16>(const RowKeys&, const ColumnShape&, std::uint8_t*);
template void Avx512::columns<LaneKind::digit32>(const RowKeys&, const ColumnShape&, std::uint8_t*);

}  // namespace kvcts::kernels
#endif
