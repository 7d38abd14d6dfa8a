// The arithmetic of tag/1 and poison, by element and by word: the contracts of tag.hpp and poison.hpp as code. Integers and
// constexpr only (nvcc: --expt-relaxed-constexpr), so host loops and device kernels share it.
#pragma once

#include <cstdint>

namespace kvcts::kernels {

/// splitmix64's finaliser.
constexpr std::uint64_t mix(std::uint64_t z) {
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9u;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// What is constant over one (component, kv, layer) of a pass.
constexpr std::uint64_t tag_prefix(std::uint64_t seed, std::uint32_t pass, std::uint32_t origin, std::uint64_t component,
                                   std::uint64_t kv, std::uint64_t layer) {
  const std::uint64_t who = component | (kv << 4) | (layer << 8) | (std::uint64_t{origin} << 32);
  return mix(mix(seed + 0x9e3779b97f4a7c15u * (std::uint64_t{pass} + 1)) ^ who);
}

constexpr std::uint64_t tag_base(std::uint64_t prefix, std::uint32_t generation) { return mix(prefix + generation); }

constexpr std::uint64_t tag_row_key(std::uint64_t base, std::uint64_t head, std::uint64_t token) {
  return mix(base ^ (head + (token << 20)));
}

inline constexpr std::uint32_t counter_step = 0x9e3779b9u;

/// The 32-bit hash of a word, from its counter (low half of the row's key, stepped) and the high half of the key.
constexpr std::uint32_t scramble(std::uint32_t counter, std::uint32_t high) {
  std::uint32_t x = counter;
  x ^= x >> 16;
  x *= 0x21f0aaadu;
  x ^= x >> 15;
  x += high;
  x *= 0x735a2d97u;
  return x ^ (x >> 15);
}

/// Word i of a row's key stream: 32 bits of channels.
constexpr std::uint32_t word(std::uint64_t row, std::uint32_t i) {
  return scramble(static_cast<std::uint32_t>(row) + i * counter_step, static_cast<std::uint32_t>(row >> 32));
}

/// How stream bits become codes of one dtype. The masks are those of one code.
struct CodeRule {
  int width{32};
  std::uint32_t and_mask{0xffffffffu};
  std::uint32_t or_mask{1};
};

/// A mask of one code, repeated over the 32 / width codes of a word.
constexpr std::uint32_t repeat(std::uint32_t mask, int width) {
  std::uint32_t out = mask;
  for (int w = width; w < 32; w *= 2) out |= out << w;
  return out;
}

inline constexpr std::uint32_t scale_digit_mask = 0xc;  // bits 2..3 of a code

/// The digit of a scale, channel excluded.
constexpr std::uint32_t scale_digit(std::uint64_t kv, std::uint64_t layer, std::uint64_t head, std::uint64_t token) {
  return static_cast<std::uint32_t>(token + head + layer + 2 * kv) & 3u;
}

/// Bits 2..3 of all codes of word i of a row whose digit (channel excluded) is `digit`. Words of 8-bit and 4-bit codes hold
/// whole periods of the digit, so theirs does not depend on i.
constexpr std::uint32_t scale_digits(int width, std::uint32_t i, std::uint32_t digit) {
  const int codes = 32 / width;
  std::uint32_t out = 0;
  for (int c = 0; c < codes; ++c) {
    out |= ((i * static_cast<std::uint32_t>(codes) + static_cast<std::uint32_t>(c) + digit) & 3u) << (2 + c * width);
  }
  return out;
}

/// Exchanges the two nibbles of each byte: from low-nibble-first to high-nibble-first packing.
constexpr std::uint32_t swap_nibbles(std::uint32_t x) { return ((x & 0x0f0f0f0fu) << 4) | ((x >> 4) & 0x0f0f0f0fu); }

/// One code; `digit` counts for scales only.
constexpr std::uint32_t code_of(const CodeRule& rule, std::uint64_t row, std::uint64_t channel, bool scale,
                                std::uint32_t digit) {
  const std::uint64_t bit = channel * static_cast<std::uint64_t>(rule.width);
  const std::uint32_t h = word(row, static_cast<std::uint32_t>(bit / 32)) >> (bit % 32);
  const std::uint32_t code = (h & rule.and_mask) | rule.or_mask;
  if (!scale) return code;
  return (code & ~scale_digit_mask) | (((static_cast<std::uint32_t>(channel) + digit) & 3u) << 2);
}

inline constexpr std::uint32_t poison_and = 0xeeeeeeeeu;
inline constexpr std::uint32_t poison_or = 0x22222222u;

/// Key of the 16 GiB of a memory file that contain word i.
constexpr std::uint64_t poison_row(std::uint64_t key, std::uint64_t i) { return mix(key + (i >> 32)); }

constexpr std::uint32_t poison_word(std::uint64_t key, std::uint64_t i) {
  return (word(poison_row(key, i), static_cast<std::uint32_t>(i)) & poison_and) | poison_or;
}

}  // namespace kvcts::kernels
