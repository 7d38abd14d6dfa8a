#include "kernels/convert/lanes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The bodies are written once and inlined into one function per instruction set, where the compiler vectorises them. This
// file is compiled without trapping maths and contraction: selects instead of branches, and a product stays a product.

namespace kvcts::kernels::convert {
namespace {

using layout::Dtype;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;

#define KVCTS_BODY [[gnu::always_inline]] inline

constexpr bool is_nibble(Dtype dtype) { return dtype == Dtype::int4 || dtype == Dtype::e2m1; }

/// Bytes of n codes of a dtype; n is even for nibbles.
constexpr std::size_t packed(Dtype dtype, std::size_t n) {
  return is_nibble(dtype) ? n / 2 : dtype == Dtype::fp32 ? 4 * n : dtype == Dtype::fp16 || dtype == Dtype::bf16 ? 2 * n : n;
}

template <Dtype dtype>
KVCTS_BODY u32 load_code(const u8* in, std::size_t i) {
  if constexpr (dtype == Dtype::fp32) {
    u32 code;
    std::memcpy(&code, in + 4 * i, 4);
    return code;
  } else if constexpr (dtype == Dtype::fp16 || dtype == Dtype::bf16) {
    u16 code;
    std::memcpy(&code, in + 2 * i, 2);
    return code;
  } else {
    return in[i];
  }
}

template <Dtype dtype>
KVCTS_BODY void store_code(u8* out, std::size_t i, u32 code) {
  if constexpr (dtype == Dtype::fp32) {
    std::memcpy(out + 4 * i, &code, 4);
  } else if constexpr (dtype == Dtype::fp16 || dtype == Dtype::bf16) {
    const auto half = static_cast<u16>(code);
    std::memcpy(out + 2 * i, &half, 2);
  } else {
    out[i] = static_cast<u8>(code);
  }
}

/// The decoded value of each code of a narrow dtype.
template <Dtype dtype>
inline constexpr auto decoded = [] {
  std::array<u32, is_nibble(dtype) ? 16 : 256> table{};
  for (u32 code = 0; code < table.size(); ++code) table[code] = decode(dtype, code);
  return table;
}();

template <Dtype dtype>
KVCTS_BODY u32 decode_one(u32 code) {
  // The machine's own conversion of whole numbers is exact.
  if constexpr (dtype == Dtype::int8) return bits_of(static_cast<float>(static_cast<std::int32_t>(code ^ 0x80u) - 0x80));
  if constexpr (dtype == Dtype::int4) return bits_of(static_cast<float>(static_cast<std::int32_t>(code ^ 0x8u) - 0x8));
  if constexpr (dtype == Dtype::uint8) return bits_of(static_cast<float>(static_cast<std::int32_t>(code)));
  if constexpr (dtype == Dtype::fp32 || dtype == Dtype::fp16 || dtype == Dtype::bf16 || dtype == Dtype::e8m0) {
    return decode(dtype, code);
  } else {
    return decoded<dtype>[code];
  }
}

template <Dtype dtype>
KVCTS_BODY void decode_codes(const u8* codes, u32* out, std::size_t n) {
  if constexpr (is_nibble(dtype)) {
    for (std::size_t i = 0; i < n / 2; ++i) {
      out[2 * i] = decode_one<dtype>(codes[i] & 0xfu);
      out[2 * i + 1] = decode_one<dtype>(codes[i] >> 4);
    }
    if (n % 2 != 0) out[n - 1] = decode_one<dtype>(codes[n / 2] & 0xfu);
  } else {
    for (std::size_t i = 0; i < n; ++i) out[i] = decode_one<dtype>(load_code<dtype>(codes, i));
  }
}

template <Dtype dtype, Overflow overflow>
KVCTS_BODY void encode_each(const u32* in, u8* codes, std::size_t n) {
  if constexpr (is_nibble(dtype)) {
    for (std::size_t i = 0; i < n / 2; ++i) {
      codes[i] = static_cast<u8>(encode(dtype, in[2 * i], overflow) | (encode(dtype, in[2 * i + 1], overflow) << 4));
    }
    if (n % 2 != 0) codes[n / 2] = static_cast<u8>(encode(dtype, in[n - 1], overflow));
  } else {
    for (std::size_t i = 0; i < n; ++i) store_code<dtype>(codes, i, encode(dtype, in[i], overflow));
  }
}

/// Vectors of that many bytes. GCC drops a vector_size that depends on a template argument, hence one by one.
template <std::size_t width>
struct Vectors;
template <>
struct Vectors<16> {
  using Words = u32 __attribute__((vector_size(16)));
  using Floats = float __attribute__((vector_size(16)));
  using Pairs = std::uint64_t __attribute__((vector_size(16)));
};
template <>
struct Vectors<32> {
  using Words = u32 __attribute__((vector_size(32)));
  using Floats = float __attribute__((vector_size(32)));
  using Pairs = std::uint64_t __attribute__((vector_size(32)));
};
template <>
struct Vectors<64> {
  using Words = u32 __attribute__((vector_size(64)));
  using Floats = float __attribute__((vector_size(64)));
  using Pairs = std::uint64_t __attribute__((vector_size(64)));
};

/// e2m1 of a vector of numbers by one addition each. p = 2^max(0, floor(log2 |y|)) is the binade, whose step is p / 2. Added
/// to p * 2^22 (whose last place is p / 2), |y| is rounded to that step, ties to even, by the adder; the sum's low bits are
/// |y| / (p / 2), which lacks 2 * log2(p) of the code. A 2 in the low bits of p * 2^22 makes up for p's bias of 127.
template <std::size_t width>
KVCTS_BODY void encode_e2m1_lanes(const u32* in, float factor, u8* codes) {
  using Words = typename Vectors<width>::Words;
  using Floats = typename Vectors<width>::Floats;
  using Pairs = typename Vectors<width>::Pairs;
  Words bits;
  std::memcpy(&bits, in, width);
  const Words y = reinterpret_cast<Words>(reinterpret_cast<Floats>(bits) * factor);
  const Words magnitude = y & ~fp32_sign;
  constexpr u32 six = std::bit_cast<u32>(6.0F), one = std::bit_cast<u32>(1.0F);
  const Words a = magnitude < six ? magnitude : (Words{} + six);
  const Words binade = a & fp32_infinity;
  const Words p = binade > one ? binade : (Words{} + one);
  const Words magic = p + ((22u << 23) + 2u);
  const Words sum = reinterpret_cast<Words>(reinterpret_cast<Floats>(a) + reinterpret_cast<Floats>(magic));
  const Words sign = magnitude > fp32_infinity ? Words{} : (y >> 28) & 8u;  // of a NaN: none
  const Words code = ((sum + (p >> 22)) & 7u) | sign;
  const Pairs pairs = reinterpret_cast<Pairs>(code);
  const Pairs bytes = pairs | (pairs >> 28);
  if constexpr (width == 64) {
    using Bytes = u8 __attribute__((vector_size(8)));
    const Bytes eight = __builtin_convertvector(bytes, Bytes);
    std::memcpy(codes, &eight, 8);
  } else {
    for (std::size_t k = 0; k < width / 8; ++k) codes[k] = static_cast<u8>(bytes[k]);
  }
}

template <std::size_t width>
KVCTS_BODY void encode_e2m1(const u32* in, u8* codes, std::size_t n) {
  std::size_t i = 0;
  for (; i + width / 4 <= n; i += width / 4) encode_e2m1_lanes<width>(in + i, 1.0F, codes + i / 2);
  encode_each<Dtype::e2m1, Overflow::saturate>(in + i, codes + i / 2, n - i);
}

template <std::size_t width, Dtype dtype, Overflow overflow>
KVCTS_BODY void encode_codes(const u32* in, u8* codes, std::size_t n) {
  if constexpr (dtype == Dtype::e2m1) {
    encode_e2m1<width>(in, codes, n);
  } else {
    encode_each<dtype, overflow>(in, codes, n);
  }
}

template <std::size_t width>
KVCTS_BODY void encode_nvfp4(const u32* in, const float* factors, std::size_t blocks, u8* codes) {
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t i = 16 * b; i < 16 * b + 16; i += width / 4)
      encode_e2m1_lanes<width>(in + i, factors[b], codes + i / 2);
  }
}

KVCTS_BODY void block_maxima(const u32* in, std::size_t block, std::size_t blocks, u32* maxima) {
  for (std::size_t b = 0; b < blocks; ++b, in += block) {
    u32 most = 0;
    for (std::size_t i = 0; i < block; ++i) {
      const u32 a = in[i] & ~fp32_sign;
      most = most > a ? most : a;
    }
    maxima[b] = most;
  }
}

/// The same for blocks of 16, sixteen of them per round: column maxima of a transposed tile are lane by lane.
KVCTS_BODY void block_maxima_16(const u32* in, std::size_t blocks, u32* maxima) {
  using Words = u32 __attribute__((vector_size(64)));
  const auto most = [](Words a, Words b) { return a > b ? a : b; };
  for (; blocks >= 16; blocks -= 16, in += 256, maxima += 16) {
    Words v[16];
    std::memcpy(v, in, sizeof v);
    for (Words& w : v) w &= ~fp32_sign;
    // Each step halves the vectors: puts halves of two blocks side by side and keeps the larger of each.
    for (int k = 0; k < 8; ++k) {
      v[k] = most(__builtin_shufflevector(v[k], v[k + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                  __builtin_shufflevector(v[k], v[k + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    }
    for (int k = 0; k < 4; ++k) {
      v[k] = most(__builtin_shufflevector(v[k], v[k + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                  __builtin_shufflevector(v[k], v[k + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
    }
    for (int k = 0; k < 2; ++k) {
      v[k] = most(__builtin_shufflevector(v[k], v[k + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                  __builtin_shufflevector(v[k], v[k + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
    }
    v[0] = most(__builtin_shufflevector(v[0], v[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
                __builtin_shufflevector(v[0], v[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
    // Lane l holds block (l mod 2) + 2 * (l / 2 mod 2) + 4 * (l / 4 mod 2) + 8 * (l / 8).
    std::memcpy(maxima, &v[0], 64);
  }
  block_maxima(in, 16, blocks, maxima);
}

KVCTS_BODY void nvfp4_scales(const u32* maxima, float global, std::size_t blocks, u8* codes, float* factors) {
  for (std::size_t b = 0; b < blocks; ++b) {
    const BlockScale scale = nvfp4_scale(maxima[b], global);
    codes[b] = static_cast<u8>(scale.code);
    factors[b] = scale.factor;
  }
}

KVCTS_BODY void scale_values(u32* values, const float* factors, std::size_t block, std::size_t blocks) {
  for (std::size_t b = 0; b < blocks; ++b, values += block) {
    for (std::size_t i = 0; i < block; ++i) values[i] = bits_of(times(float_of(values[i]), factors[b]));
  }
}

/// Half steps on the grid of a 16-bit magnitude with the target's mantissa: even ones are numbers of the grid, odd ones
/// everything between two of them. This is the one of half the target's least denormal, up to which everything rounds to
/// zero.
template <Dtype from, Dtype to>
inline constexpr u16 first_step = [] {
  constexpr Format source = format_of(from), target = format_of(to);
  constexpr int exponent = source.bias - target.bias - target.mantissa;
  static_assert(exponent > 0, "all denormals of the source round to zero");
  return static_cast<u16>(exponent << (target.mantissa + 1));
}();

/// The target's code of each half step from there on to its least normal number. Ties lie on even steps.
template <Dtype from, Dtype to>
inline constexpr auto denormal_codes = [] {
  constexpr Format source = format_of(from), target = format_of(to);
  constexpr int drop = source.mantissa - target.mantissa;
  std::array<u16, 64> table{};
  static_assert((target.mantissa + 1) << (target.mantissa + 1) <= 64);
  for (u32 i = 0; i < table.size(); ++i) {
    const u32 step = first_step<from, to> + i;
    table[i] = static_cast<u16>(encode(to, decode(from, ((step / 2) << drop) + step % 2), Overflow::saturate));
  }
  return table;
}();

/// One 16-bit float to an 8-bit one within 16-bit lanes: encode_float() of decode_float(), shortened. All numbers of a
/// 16-bit format lie on its own grid, so rounding needs no fp32 bits.
template <Dtype from, Dtype to, Overflow overflow, typename V>
KVCTS_BODY V narrow(V h) {
  constexpr Format source = format_of(from), target = format_of(to);
  constexpr int drop = source.mantissa - target.mantissa;
  constexpr int rebias = source.bias - target.bias;
  const V a = h & static_cast<u16>(source.top());
  // Normal numbers: exponents moved, then the dropped bits rounded to even.
  constexpr u16 moved = static_cast<u16>((1u << (drop - 1)) - 1u - (static_cast<u32>(rebias) << source.mantissa));
  V code = (a + (((a >> drop) & static_cast<u16>(1)) + moved)) >> drop;
  if constexpr (rebias > 0) {
    // Denormals of the target have one code between two neighbours of its grid: looked up, which is cheaper than
    // shifting each significand by what its exponent lacks.
    constexpr u16 first = first_step<from, to>;
    V step = (a >> drop) + ((a + static_cast<u16>((1u << drop) - 1u)) >> drop);
    step = (step > first ? step : (V{} + first)) - first;
    V low, high;
    std::memcpy(&low, denormal_codes<from, to>.data(), 64);
    std::memcpy(&high, denormal_codes<from, to>.data() + 32, 64);
    code = a < static_cast<u16>((rebias + 1) << source.mantissa) ? __builtin_shuffle(low, high, step) : code;
  } else if constexpr (rebias < 0) {
    // e5m2fnuz from fp16: the target reaches a binade lower, denormals of the source become denormals or normal numbers.
    constexpr u16 half = static_cast<u16>((1u << (drop - 2)) - 1u);
    const V rounded = (a + (((a >> (drop - 1)) & static_cast<u16>(1)) + half)) >> (drop - 1);
    code = a < static_cast<u16>(1u << source.mantissa) ? rounded : code;
  }
  constexpr u16 infinity = static_cast<u16>(source.infinity());
  // The least magnitude that rounds beyond the largest number: half of a last place more, and the tie is not even.
  constexpr u32 largest_in_source =
      static_cast<u32>(target.largest() << drop) + (static_cast<u32>(rebias) << source.mantissa);
  constexpr u32 half_step = 1u << (drop - 1);
  constexpr u32 past = largest_in_source + half_step + ((target.largest() & 1u) == 0 ? 1u : 0u);
  constexpr u16 over = static_cast<u16>(past < infinity ? past : infinity);
  constexpr u16 replaced = static_cast<u16>(overflow == Overflow::saturate ? target.largest() : target.beyond());
  code = a >= over ? (V{} + replaced) : code;
  V sign = (h >> 8) & static_cast<u16>(0x80);
  if constexpr (target.specials == Specials::fnuz) {
    sign = code == static_cast<u16>(0) ? V{} : sign;
    code |= sign;
    if constexpr (overflow == Overflow::special) code = a >= over ? (V{} + static_cast<u16>(target.nan())) : code;
  } else if constexpr (target.specials == Specials::fn && overflow == Overflow::special) {
    code |= sign;
    code = a >= over ? (V{} + static_cast<u16>(target.nan())) : code;
  } else {
    code |= sign;
  }
  return a > infinity ? (V{} + static_cast<u16>(target.nan())) : code;
}

template <Dtype from, Dtype to, Overflow overflow>
KVCTS_BODY void narrow_codes(const u8* in, u8* out, std::size_t n) {
  using V = u16 __attribute__((vector_size(64)));
  using B = u8 __attribute__((vector_size(32)));
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    V h;
    __builtin_prefetch(in + 2 * i + prefetch_ahead);
    std::memcpy(&h, in + 2 * i, 64);
    const B codes = __builtin_convertvector(narrow<from, to, overflow>(h), B);
    std::memcpy(out + i, &codes, 32);
  }
  for (; i < n; ++i) out[i] = static_cast<u8>(encode(to, decode(from, load_code<from>(in, i)), overflow));
}

// One instruction set: functions with its target attribute, made from the bodies above. `flatten`: the loops must inline the
// element functions.
struct Baseline {
  template <Dtype dtype>
  [[gnu::flatten]] static void decode(const u8* codes, u32* out, std::size_t n) {
    decode_codes<dtype>(codes, out, n);
  }
  template <Dtype dtype, Overflow overflow>
  [[gnu::flatten]] static void encode(const u32* in, u8* codes, std::size_t n) {
    encode_codes<16, dtype, overflow>(in, codes, n);
  }
  [[gnu::flatten]] static void nvfp4(const u32* in, const float* factors, std::size_t count, u8* codes) {
    encode_nvfp4<16>(in, factors, count, codes);
  }
  [[gnu::flatten]] static void maxima(const u32* in, std::size_t block, std::size_t count, u32* out) {
    block_maxima(in, block, count, out);
  }
  [[gnu::flatten]] static void scales(const u32* maxima, float global, std::size_t count, u8* codes, float* factors) {
    nvfp4_scales(maxima, global, count, codes, factors);
  }
  [[gnu::flatten]] static void values(u32* values, const float* factors, std::size_t block, std::size_t count) {
    scale_values(values, factors, block, count);
  }
  static void stream(u8* to, const u8* from, std::size_t n) { std::memcpy(to, from, n); }
  static void drain() {}
};

#if defined(__x86_64__)
#define KVCTS_AVX2 gnu::target("avx2,bmi2,f16c"), gnu::flatten
#define KVCTS_AVX512 gnu::target("avx512f,avx512bw,avx512vl,bmi2,f16c,prefer-vector-width=512"), gnu::flatten

struct Avx2 {
  template <Dtype dtype>
  [[KVCTS_AVX2]] static void decode(const u8* codes, u32* out, std::size_t n) {
    if constexpr (dtype == Dtype::fp16) {
      std::size_t i = 0;
      for (; i + 8 <= n; i += 8) {
        __m128i half;
        std::memcpy(&half, codes + 2 * i, 16);
        const __m256 wide = _mm256_cvtph_ps(half);
        const __m256 nan = _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q);
        const __m256 canonical = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(fp32_nan)));
        const __m256 value = _mm256_blendv_ps(wide, canonical, nan);
        std::memcpy(out + i, &value, 32);
      }
      decode_codes<dtype>(codes + 2 * i, out + i, n - i);
    } else {
      decode_codes<dtype>(codes, out, n);
    }
  }
  template <Dtype dtype, Overflow overflow>
  [[KVCTS_AVX2]] static void encode(const u32* in, u8* codes, std::size_t n) {
    std::size_t i = 0;
    if constexpr (dtype == Dtype::fp16) {
      const __m256 largest = _mm256_set1_ps(65504.0F);
      for (; i + 8 <= n; i += 8) {
        __m256 value = _mm256_loadu_ps(reinterpret_cast<const float*>(in + i));
        const __m256 canonical = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(fp32_nan)));
        const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
        if constexpr (overflow == Overflow::saturate) {
          value = _mm256_max_ps(_mm256_min_ps(value, largest), _mm256_sub_ps(_mm256_setzero_ps(), largest));
        }
        value = _mm256_blendv_ps(value, canonical, nan);
        const __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        std::memcpy(codes + 2 * i, &half, 16);
      }
    }
    encode_codes<32, dtype, overflow>(in + i, codes + packed(dtype, i), n - i);
  }
  [[KVCTS_AVX2]] static void nvfp4(const u32* in, const float* factors, std::size_t count, u8* codes) {
    encode_nvfp4<32>(in, factors, count, codes);
  }
  [[KVCTS_AVX2]] static void maxima(const u32* in, std::size_t block, std::size_t count, u32* out) {
    block_maxima(in, block, count, out);
  }
  [[KVCTS_AVX2]] static void scales(const u32* maxima, float global, std::size_t count, u8* codes, float* factors) {
    nvfp4_scales(maxima, global, count, codes, factors);
  }
  [[KVCTS_AVX2]] static void values(u32* values, const float* factors, std::size_t block, std::size_t count) {
    scale_values(values, factors, block, count);
  }
  [[KVCTS_AVX2]] static void stream(u8* to, const u8* from, std::size_t n) {
    const std::size_t head = std::min(n, static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(to) % 32));
    std::memcpy(to, from, head);
    std::size_t i = head;
    for (; i + 32 <= n; i += 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
    }
    std::memcpy(to + i, from + i, n - i);
  }
  static void drain() { _mm_sfence(); }
};

struct Avx512 {
  template <Dtype dtype>
  [[KVCTS_AVX512]] static void decode(const u8* codes, u32* out, std::size_t n) {
    if constexpr (dtype == Dtype::fp16) {
      std::size_t i = 0;
      for (; i + 16 <= n; i += 16) {
        const __m512 wide =
            _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 2 * i)));
        const __mmask16 nan = _mm512_cmp_ps_mask(wide, wide, _CMP_UNORD_Q);
        const __m512i canonical = _mm512_set1_epi32(static_cast<int>(fp32_nan));
        _mm512_storeu_si512(out + i, _mm512_mask_mov_epi32(_mm512_castps_si512(wide), nan, canonical));
      }
      decode_codes<dtype>(codes + 2 * i, out + i, n - i);
    } else {
      decode_codes<dtype>(codes, out, n);
    }
  }
  template <Dtype dtype, Overflow overflow>
  [[KVCTS_AVX512]] static void encode(const u32* in, u8* codes, std::size_t n) {
    std::size_t i = 0;
    if constexpr (dtype == Dtype::fp16) {
      const __m512 largest = _mm512_set1_ps(65504.0F), least = _mm512_set1_ps(-65504.0F);
      const __m512 canonical = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(fp32_nan)));
      for (; i + 16 <= n; i += 16) {
        __m512 value = _mm512_loadu_ps(in + i);
        const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
        if constexpr (overflow == Overflow::saturate) {
          value = _mm512_maskz_max_ps(0xffff, _mm512_maskz_min_ps(0xffff, value, largest), least);
        }
        value = _mm512_mask_mov_ps(value, nan, canonical);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 2 * i),
                            _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
      }
    }
    encode_codes<64, dtype, overflow>(in + i, codes + packed(dtype, i), n - i);
  }
  [[KVCTS_AVX512]] static void nvfp4(const u32* in, const float* factors, std::size_t count, u8* codes) {
    encode_nvfp4<64>(in, factors, count, codes);
  }
  template <Dtype from, Dtype to, Overflow overflow>
  [[KVCTS_AVX512]] static void narrow(const u8* in, u8* out, std::size_t n) {
    narrow_codes<from, to, overflow>(in, out, n);
  }
  [[KVCTS_AVX512]] static void maxima(const u32* in, std::size_t block, std::size_t count, u32* out) {
    if (block == 16) return block_maxima_16(in, count, out);
    block_maxima(in, block, count, out);
  }
  [[KVCTS_AVX512]] static void scales(const u32* maxima, float global, std::size_t count, u8* codes, float* factors) {
    nvfp4_scales(maxima, global, count, codes, factors);
  }
  [[KVCTS_AVX512]] static void values(u32* values, const float* factors, std::size_t block, std::size_t count) {
    scale_values(values, factors, block, count);
  }
  [[KVCTS_AVX512]] static void stream(u8* to, const u8* from, std::size_t n) {
    const std::size_t head = std::min(n, static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(to) % 64));
    std::memcpy(to, from, head);
    std::size_t i = head;
    for (; i + 64 <= n; i += 64) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
    std::memcpy(to + i, from + i, n - i);
  }
  static void drain() { _mm_sfence(); }
};
#endif

template <Dtype...>
struct Dtypes {};

constexpr std::size_t at(Dtype dtype) { return static_cast<std::size_t>(dtype); }

template <typename Set, Dtype dtype>
constexpr void add_dtype(Lanes& lanes) {
  lanes.decode[at(dtype)] = &Set::template decode<dtype>;
  lanes.encode[at(dtype)][0] = &Set::template encode<dtype, Overflow::saturate>;
  lanes.encode[at(dtype)][1] = &Set::template encode<dtype, Overflow::special>;
}

template <typename Set, Dtype from, Dtype to>
constexpr void add_narrow(Lanes& lanes) {
  auto& entry = lanes.narrow[from == Dtype::bf16][at(to) - at(Dtype::e4m3fn)];
  entry[0] = &Set::template narrow<from, to, Overflow::saturate>;
  entry[1] = &Set::template narrow<from, to, Overflow::special>;
}

template <typename Set, bool narrows>
constexpr Lanes lanes_of(std::string_view name) {
  using enum Dtype;
  Lanes lanes;
  lanes.name = name;
  [&]<Dtype... dtype>(Dtypes<dtype...>) {
    (add_dtype<Set, dtype>(lanes), ...);
  }(Dtypes<fp32, fp16, bf16, e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, int8, uint8, int4, e2m1, e8m0>());
  if constexpr (narrows) {
    [&]<Dtype... to>(Dtypes<to...>) {
      (add_narrow<Set, fp16, to>(lanes), ...);
      (add_narrow<Set, bf16, to>(lanes), ...);
    }(Dtypes<e4m3fn, e5m2, e4m3fnuz, e5m2fnuz>());
  }
  lanes.maxima = &Set::maxima;
  lanes.nvfp4 = &Set::nvfp4;
  lanes.nvfp4_scales = &Set::scales;
  lanes.scale_values = &Set::values;
  lanes.stream = &Set::stream;
  lanes.drain = &Set::drain;
  return lanes;
}

}  // namespace

#if defined(__x86_64__)
std::span<const Lanes> usable_lanes() {
  static constexpr std::array sets{lanes_of<Baseline, false>("baseline"), lanes_of<Avx2, false>("avx2"),
                                   lanes_of<Avx512, true>("avx512")};
  static const std::size_t usable = [] {
    __builtin_cpu_init();
    const bool avx2 =
        __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_supports("f16c") != 0;
    const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                        __builtin_cpu_supports("avx512vl") != 0;
    return !avx2 ? 1 : avx512 ? 3 : 2;
  }();
  return std::span(sets).first(usable);
}
#else
std::span<const Lanes> usable_lanes() {
  static constexpr std::array sets{lanes_of<Baseline, false>("baseline")};
  return sets;
}
#endif

const Lanes& best_lanes() {
  static const Lanes& best = usable_lanes().back();
  return best;
}

}  // namespace kvcts::kernels::convert
