#include "kernels/isa.hpp"

#include <algorithm>
#include <array>

#include "kernels/isa_avx512.hpp"
#include "kernels/isa_loops.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvcts::kernels {
namespace {

// One instruction set: a struct of functions with the target attribute, made from the bodies of isa_loops.hpp.
struct Baseline {
  template <LaneKind kind>
  static void rows(const RowKeys& keys, const RowShape& shape, std::uint8_t* out) {
    loops::rows<kind>(keys, shape, out);
  }
  template <LaneKind kind>
  static void columns(const RowKeys& keys, const ColumnShape& shape, std::uint8_t* out) {
    loops::columns<kind>(keys, shape, out);
  }
  static void keys(const std::uint64_t* states, std::size_t n, std::uint32_t* low, std::uint32_t* high) {
    loops::keys(states, n, low, high);
  }
  static std::size_t count(const std::uint8_t* a, const std::uint8_t* b, std::size_t n) { return loops::count(a, b, n); }
  static bool equal(const std::uint8_t* seen, const std::uint8_t* tile, const Pieces& pieces) {
    return loops::equal(seen, tile, pieces);
  }
#if defined(__x86_64__)
  static void stream(std::uint8_t* to, const std::uint8_t* from, std::size_t n) {
    std::size_t k = std::min(n, (16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16);
    std::memcpy(to, from, k);
    for (; k + 16 <= n; k += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)));
    }
    std::memcpy(to + k, from + k, n - k);
  }
  static void drain() { _mm_sfence(); }
#else
  static void stream(std::uint8_t* to, const std::uint8_t* from, std::size_t n) { std::memcpy(to, from, n); }
  static void drain() {}
#endif
};

#if defined(__x86_64__)
struct Avx2 {
  template <LaneKind kind>
  [[gnu::target("avx2,bmi2")]] static void rows(const RowKeys& keys, const RowShape& shape, std::uint8_t* out) {
    loops::rows<kind>(keys, shape, out);
  }
  template <LaneKind kind>
  [[gnu::target("avx2,bmi2")]] static void columns(const RowKeys& keys, const ColumnShape& shape, std::uint8_t* out) {
    loops::columns<kind>(keys, shape, out);
  }
  [[gnu::target("avx2,bmi2")]] static void keys(const std::uint64_t* states, std::size_t n, std::uint32_t* low,
                                                std::uint32_t* high) {
    loops::keys(states, n, low, high);
  }
  [[gnu::target("avx2,bmi2")]] static std::size_t count(const std::uint8_t* a, const std::uint8_t* b, std::size_t n) {
    return loops::count(a, b, n);
  }
  [[gnu::target("avx2,bmi2")]] static bool equal(const std::uint8_t* seen, const std::uint8_t* tile, const Pieces& pieces) {
    return loops::equal(seen, tile, pieces);
  }
  static void stream(std::uint8_t* to, const std::uint8_t* from, std::size_t n) { Baseline::stream(to, from, n); }
  static void drain() { Baseline::drain(); }
};
#endif

template <typename Set>
constexpr Isa isa(std::string_view name) {
  return {name,
          {&Set::template rows<LaneKind::plain>, &Set::template rows<LaneKind::swapped>,
           &Set::template rows<LaneKind::digit16>, &Set::template rows<LaneKind::digit32>},
          {&Set::template columns<LaneKind::plain>, &Set::template columns<LaneKind::plain>,
           &Set::template columns<LaneKind::digit16>, &Set::template columns<LaneKind::digit32>},
          &Set::keys,
          &Set::count,
          &Set::equal,
          &Set::stream,
          &Set::drain};
}

}  // namespace

#if defined(__x86_64__)
std::span<const Isa> usable_isas() {
  static constexpr std::array sets{isa<Baseline>("baseline"), isa<Avx2>("avx2"), isa<Avx512>("avx512")};
  static const std::size_t usable = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2")) return 1;
    for (const bool there : {__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx512bw") != 0,
                             __builtin_cpu_supports("avx512dq") != 0, __builtin_cpu_supports("avx512vl") != 0,
                             __builtin_cpu_supports("avx512vbmi") != 0}) {
      if (!there) return 2;
    }
    return 3;
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
