// The bodies of the inner loops, written once: isa.cpp inlines them into one function per instruction set, where the
// compiler vectorises them.
#pragma once

#include <bit>
#include <cstring>

#include "kernels/isa.hpp"
#include "kernels/tag_math.hpp"

namespace kvcts::kernels::loops {

static_assert(std::endian::native == std::endian::little, "tags and poison are little endian words, written as they are");

/// Turns a hashed word into codes. In an OR mask, the digits of a 16-bit or 32-bit scale are those of word 0. With two
/// channels per word, an odd word's digits are 2 further (bit 3 flips); with one, word i's are i further.
template <LaneKind kind>
[[gnu::always_inline]] inline std::uint32_t lane(std::uint32_t counter, std::uint32_t high, std::uint32_t i,
                                                 std::uint32_t and_mask, std::uint32_t or_mask) {
  std::uint32_t x = scramble(counter, high) & and_mask;
  if constexpr (kind == LaneKind::digit32) {
    return x | (or_mask & ~scale_digit_mask) | ((or_mask + (i << 2)) & scale_digit_mask);
  }
  x |= or_mask;
  if constexpr (kind == LaneKind::digit16) x ^= (i & 1u) * 0x00080008u;
  if constexpr (kind == LaneKind::swapped) x = swap_nibbles(x);
  return x;
}

template <LaneKind kind>
[[gnu::always_inline]] inline void one_run(const RowKeys& keys, const RowShape& shape, std::uint32_t first,
                                           std::uint8_t* out) {
  const std::uint32_t and_mask = shape.and_mask;
  const std::size_t words = shape.bytes / 4, tail = shape.bytes % 4;
  for (std::size_t r = 0; r < keys.rows; ++r, out += shape.pitch) {
    const std::uint32_t high = keys.high[r], or_mask = keys.or_mask[r];
    // Steps the counter instead of multiplying: saves one product per word.
    std::uint32_t i = first, counter = keys.low[r] + first * counter_step;
    for (std::size_t k = 0; k < words; ++k, ++i, counter += counter_step) {
      const std::uint32_t x = lane<kind>(counter, high, i, and_mask, or_mask);
      std::memcpy(out + 4 * k, &x, 4);
    }
    if (tail != 0) {
      const std::uint32_t x = lane<kind>(counter, high, i, and_mask, or_mask);
      for (std::size_t b = 0; b < tail; ++b) out[4 * words + b] = static_cast<std::uint8_t>(x >> (8 * b));
    }
  }
}

template <LaneKind kind>
[[gnu::always_inline]] inline void rows(const RowKeys& keys, const RowShape& shape, std::uint8_t* out) {
  std::uint32_t first = shape.first_word;
  for (std::size_t k = 0; k < shape.runs; ++k, first += shape.run_words, out += shape.run_pitch) {
    one_run<kind>(keys, shape, first, out);
  }
}

/// Codes of n rows from one word of each: code c of row r to column c.
template <typename Code>
[[gnu::always_inline]] inline void spread(const std::uint32_t* lanes, std::size_t n, std::uint8_t* out, std::size_t column) {
  constexpr int codes = 4 / sizeof(Code);
  for (int c = 0; c < codes; ++c) {
    for (std::size_t r = 0; r < n; ++r) {
      const auto code = static_cast<Code>(lanes[r] >> (c * 8 * static_cast<int>(sizeof(Code))));
      std::memcpy(out + static_cast<std::size_t>(c) * column + r * sizeof(Code), &code, sizeof(Code));
    }
  }
}

[[gnu::always_inline]] inline void spread_nibbles(const std::uint32_t* lanes, std::size_t n, std::uint8_t* out,
                                                  std::size_t column, bool high_first) {
  const int even = high_first ? 4 : 0;
  for (int c = 0; c < 8; ++c) {
    for (std::size_t p = 0; p < n / 2; ++p) {
      const std::uint32_t a = (lanes[2 * p] >> (4 * c)) & 15u, b = (lanes[2 * p + 1] >> (4 * c)) & 15u;
      out[static_cast<std::size_t>(c) * column + p] = static_cast<std::uint8_t>((a << even) | (b << (4 - even)));
    }
  }
}

template <LaneKind kind>
[[gnu::always_inline]] inline void columns(const RowKeys& keys, const ColumnShape& shape, std::uint8_t* out) {
  constexpr std::size_t chunk = 64;
  std::uint32_t lanes[chunk];
  const auto width = static_cast<std::size_t>(shape.width);
  const std::size_t column = keys.rows * width / 8;
  for (std::size_t w = 0; w < shape.words; ++w, out += 32 / width * column) {
    const std::uint32_t i = shape.first_word + static_cast<std::uint32_t>(w), step = i * counter_step;
    for (std::size_t r = 0; r < keys.rows; r += chunk) {
      const std::size_t n = keys.rows - r < chunk ? keys.rows - r : chunk;
      for (std::size_t k = 0; k < n; ++k) {
        lanes[k] = lane<kind>(keys.low[r + k] + step, keys.high[r + k], i, shape.and_mask, keys.or_mask[r + k]);
      }
      std::uint8_t* to = out + r * width / 8;
      if (width == 32) spread<std::uint32_t>(lanes, n, to, column);
      if (width == 16) spread<std::uint16_t>(lanes, n, to, column);
      if (width == 8) spread<std::uint8_t>(lanes, n, to, column);
      if (width == 4) spread_nibbles(lanes, n, to, column, shape.high_nibble_first);
    }
  }
}

[[gnu::always_inline]] inline void keys(const std::uint64_t* states, std::size_t n, std::uint32_t* low,
                                        std::uint32_t* high) {
  for (std::size_t r = 0; r < n; ++r) {
    const std::uint64_t key = mix(states[r]);
    low[r] = static_cast<std::uint32_t>(key);
    high[r] = static_cast<std::uint32_t>(key >> 32);
  }
}

[[gnu::always_inline]] inline std::size_t count(const std::uint8_t* a, const std::uint8_t* b, std::size_t n) {
  std::size_t total = 0;
  while (n > 0) {
    // 255 rounds of 64 byte-wide counters cannot overflow; sum them after each batch.
    constexpr std::size_t lanes = 64;
    std::size_t rounds = n / lanes < 255 ? n / lanes : 255;
    if (rounds == 0) {
      for (std::size_t k = 0; k < n; ++k) total += a[k] != b[k];
      return total;
    }
    n -= rounds * lanes;
    std::uint8_t counters[lanes]{};
    for (; rounds > 0; --rounds, a += lanes, b += lanes) {
      for (std::size_t k = 0; k < lanes; ++k) counters[k] = static_cast<std::uint8_t>(counters[k] + (a[k] != b[k]));
    }
    for (const std::uint8_t c : counters) total += c;
  }
  return total;
}

/// No branch per byte: eight bytes at once, the rest one by one.
[[gnu::always_inline]] inline bool equal(const std::uint8_t* seen, const std::uint8_t* tile, const Pieces& pieces) {
  std::uint64_t different = 0;
  for (std::size_t o = 0; o < pieces.outer; ++o) {
    const std::uint8_t* at = seen + static_cast<std::int64_t>(o) * pieces.outer_pitch;
    for (std::size_t k = 0; k < pieces.count; ++k, at += pieces.pitch, tile += pieces.bytes) {
      std::size_t b = 0;
      for (; b + 8 <= pieces.bytes; b += 8) {
        std::uint64_t x = 0, y = 0;
        std::memcpy(&x, at + b, 8);
        std::memcpy(&y, tile + b, 8);
        different |= x ^ y;
      }
      for (; b < pieces.bytes; ++b) different |= static_cast<std::uint64_t>(at[b] ^ tile[b]);
    }
  }
  return different == 0;
}

}  // namespace kvcts::kernels::loops
