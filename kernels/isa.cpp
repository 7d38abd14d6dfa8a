#include "kernels/isa.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "kernels/tag_math.hpp"

namespace kvcts::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "tags and poison are little endian words, written as they are");

// The bodies are written once and inlined into one function per instruction set, where the compiler vectorises them.

template <LaneKind kind>
[[gnu::always_inline]] inline std::uint32_t lane(std::uint32_t counter, std::uint32_t high, std::uint32_t i,
                                                 std::uint32_t and_mask, std::uint32_t or_mask, std::uint32_t digit) {
  std::uint32_t x = (scramble(counter, high) & and_mask) | or_mask;
  // The digit bits are clear in both masks of a 16-bit or 32-bit scale. (channel + digit) mod 4 of channels 2i, 2i + 1: an
  // odd i adds 2, which flips bit 3.
  if constexpr (kind == LaneKind::digit16) x |= scale_digits(16, 0, digit) ^ ((i & 1u) * 0x00080008u);
  if constexpr (kind == LaneKind::digit32) x |= ((i + digit) & 3u) << 2;
  if constexpr (kind == LaneKind::swapped) x = swap_nibbles(x);
  return x;
}

template <LaneKind kind>
[[gnu::always_inline]] inline void write_rows(std::span<const LaneRow> rows, const LaneShape& shape) {
  const std::uint32_t first = shape.first_word, and_mask = shape.and_mask;
  const std::size_t words = shape.bytes / 4, tail = shape.bytes % 4;
  for (const LaneRow& row : rows) {
    const auto [key, out, or_mask, digit] = row;
    const auto high = static_cast<std::uint32_t>(key >> 32);
    // The counter is stepped, not multiplied: one product a word less.
    std::uint32_t i = first, counter = static_cast<std::uint32_t>(key) + first * counter_step;
    for (std::size_t k = 0; k < words; ++k, ++i, counter += counter_step) {
      const std::uint32_t x = lane<kind>(counter, high, i, and_mask, or_mask, digit);
      std::memcpy(out + 4 * k, &x, 4);
    }
    if (tail != 0) {
      const std::uint32_t x = lane<kind>(counter, high, i, and_mask, or_mask, digit);
      for (std::size_t b = 0; b < tail; ++b) out[4 * words + b] = static_cast<std::uint8_t>(x >> (8 * b));
    }
  }
}

[[gnu::always_inline]] inline std::size_t count_differences(const std::uint8_t* a, const std::uint8_t* b, std::size_t n) {
  std::size_t total = 0;
  while (n > 0) {
    // 255 rounds of 64 byte-wide counters cannot overflow; they are summed between.
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

// One instruction set: a struct of functions with the target attribute, made from the bodies above.
struct Baseline {
  template <LaneKind kind>
  static void write(std::span<const LaneRow> rows, const LaneShape& shape) {
    write_rows<kind>(rows, shape);
  }
  static std::size_t count(const std::uint8_t* a, const std::uint8_t* b, std::size_t n) {
    return count_differences(a, b, n);
  }
};

#if defined(__x86_64__)
struct Avx2 {
  template <LaneKind kind>
  [[gnu::target("avx2,bmi2")]] static void write(std::span<const LaneRow> rows, const LaneShape& shape) {
    write_rows<kind>(rows, shape);
  }
  [[gnu::target("avx2,bmi2")]] static std::size_t count(const std::uint8_t* a, const std::uint8_t* b, std::size_t n) {
    return count_differences(a, b, n);
  }
};

struct Avx512 {
  template <LaneKind kind>
  [[gnu::target("avx512f,avx512bw,avx512vl,bmi2,prefer-vector-width=512")]] static void write(std::span<const LaneRow> rows,
                                                                                              const LaneShape& shape) {
    write_rows<kind>(rows, shape);
  }
  [[gnu::target("avx512f,avx512bw,avx512vl,bmi2,prefer-vector-width=512")]] static std::size_t count(const std::uint8_t* a,
                                                                                                     const std::uint8_t* b,
                                                                                                     std::size_t n) {
    return count_differences(a, b, n);
  }
};
#endif

template <typename Set>
constexpr Isa isa(std::string_view name) {
  return {name,
          {&Set::template write<LaneKind::plain>, &Set::template write<LaneKind::swapped>,
           &Set::template write<LaneKind::digit16>, &Set::template write<LaneKind::digit32>},
          &Set::count};
}

}  // namespace

#if defined(__x86_64__)
std::span<const Isa> usable_isas() {
  static constexpr std::array sets{isa<Baseline>("baseline"), isa<Avx2>("avx2"), isa<Avx512>("avx512")};
  static const std::size_t usable = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2")) return 1;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") ? 3
                                                                                                                         : 2;
  }();
  return std::span(sets).first(usable);
}
#else
std::span<const Isa> usable_isas() {
  static constexpr std::array sets{isa<Baseline>("baseline")};
  return sets;
}
#endif

const Isa& best_isa() {
  static const Isa& best = usable_isas().back();
  return best;
}

}  // namespace kvcts::kernels
