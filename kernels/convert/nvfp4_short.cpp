#include "kernels/convert/nvfp4_short.hpp"

#include <cstring>

#include "kernels/convert/block.hpp"
#include "kernels/convert/lanes.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvcts::kernels::convert {
namespace {

using layout::Dtype;

/// The least magnitude up to infinity whose code is `code` or more; beyond all magnitudes if none is.
std::uint16_t least_magnitude(Dtype from, float factor, std::uint32_t infinity, std::uint32_t code) {
  std::uint32_t low = 0, high = infinity + 1;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (encode_scaled(Dtype::e2m1, decode(from, middle), factor) >= code) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return static_cast<std::uint16_t>(low > infinity ? 0xffffu : low);
}

}  // namespace

#if defined(__x86_64__)

std::unique_ptr<const ShortTables> short_tables(Dtype from, float global) {
  if (from != Dtype::fp16 && from != Dtype::bf16) return nullptr;
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
    return nullptr;
  auto tables = std::make_unique<ShortTables>();
  tables->infinity = format_of(from).infinity();
  std::array<float, 128> factors{};
  std::array<bool, 128> known{};
  for (std::uint32_t magnitude = 0; magnitude <= tables->infinity; ++magnitude) {
    const BlockScale scale = nvfp4_scale(decode(from, magnitude), global);
    tables->scale[magnitude] = static_cast<std::uint8_t>(scale.code);
    factors[scale.code] = scale.factor;
    known[scale.code] = true;
  }
  for (std::uint32_t scale = 0; scale < 128; ++scale) {
    if (!known[scale]) continue;
    if (bits_of(factors[scale]) >= fp32_infinity) return nullptr;
    for (std::uint32_t code = 1; code < 8; ++code) {
      tables->least[scale][code] = least_magnitude(from, factors[scale], tables->infinity, code);
    }
  }
  return tables;
}

[[gnu::target("avx512f,avx512bw,avx512vl,bmi2")]] bool quantise_short(const ShortTables& tables, const std::uint8_t* in,
                                                                      std::uint8_t* codes, std::uint8_t* scales) {
  const __m512i magnitude_bits = _mm512_set1_epi16(0x7fff);
  // Largest magnitudes: halves of two blocks side by side, keeping the larger, until a block is one word.
  __m512i v[8], four[4];
  for (int k = 0; k < 8; ++k) {
    __builtin_prefetch(in + 64 * k + prefetch_ahead);
    v[k] = _mm512_and_si512(_mm512_loadu_si512(in + 64 * k), magnitude_bits);
  }
  for (int k = 0; k < 4; ++k) {
    four[k] = _mm512_max_epu16(_mm512_shuffle_i64x2(v[2 * k], v[2 * k + 1], 0x88),
                               _mm512_shuffle_i64x2(v[2 * k], v[2 * k + 1], 0xdd));
  }
  const __m512i low = _mm512_max_epu16(_mm512_unpacklo_epi64(four[0], four[1]), _mm512_unpackhi_epi64(four[0], four[1]));
  const __m512i high = _mm512_max_epu16(_mm512_unpacklo_epi64(four[2], four[3]), _mm512_unpackhi_epi64(four[2], four[3]));
  const __m512 a = _mm512_castsi512_ps(low), b = _mm512_castsi512_ps(high);
  const __m512i pairs = _mm512_max_epu16(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                                         _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
  const __m512i maxima = _mm512_and_si512(_mm512_max_epu16(pairs, _mm512_srli_epi32(pairs, 16)), _mm512_set1_epi32(0x7fff));
  if (_mm512_cmpgt_epi32_mask(maxima, _mm512_set1_epi32(static_cast<int>(tables.infinity))) != 0) return false;
  alignas(64) std::uint32_t amax[16];  // block b is at 4 * (b mod 4) + b / 4
  _mm512_store_si512(amax, maxima);

  const __m512i seven = _mm512_set1_epi16(7), unit = _mm512_set1_epi16(0x0202), two = _mm512_set1_epi16(0x0404);
  for (std::size_t pair = 0; pair < 8; ++pair) {
    const std::size_t first = 2 * pair, second = first + 1;
    const std::uint8_t scale_a = tables.scale[amax[4 * (first % 4) + first / 4]],
                       scale_b = tables.scale[amax[4 * (second % 4) + second / 4]];
    scales[first] = scale_a;
    scales[second] = scale_b;
    const auto least = [&](std::uint8_t scale) {
      return _mm_load_si128(reinterpret_cast<const __m128i*>(tables.least[scale].data()));
    };
    const __m512i table = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(least(scale_a))),
                                             _mm256_broadcastsi128_si256(least(scale_b)), 1);
    const __m512i h = _mm512_loadu_si512(in + 64 * pair);
    const __m512i m = _mm512_and_si512(h, magnitude_bits);
    // Where a code's least magnitude is in the table: bytes 2 * code and 2 * code + 1. First 4, then 2 or 6, then an odd
    // one.
    const __mmask32 from_four = _mm512_cmpge_epu16_mask(m, _mm512_shuffle_epi8(table, _mm512_set1_epi16(0x0908)));
    __m512i at = _mm512_mask_blend_epi16(from_four, _mm512_set1_epi16(0x0504), _mm512_set1_epi16(0x0d0c));
    const __mmask32 upper = _mm512_cmpge_epu16_mask(m, _mm512_shuffle_epi8(table, at));
    at = _mm512_sub_epi16(at, unit);
    at = _mm512_mask_add_epi16(at, upper, at, two);
    const __mmask32 even = _mm512_cmplt_epu16_mask(m, _mm512_shuffle_epi8(table, at));
    __m512i code = _mm512_srli_epi16(at, 1);  // its low bits are the odd code
    code = _mm512_mask_sub_epi16(code, even, code, _mm512_set1_epi16(1));
    const __m512i signed_code = _mm512_ternarylogic_epi32(seven, code, _mm512_srli_epi16(h, 12), 0xca);  // 7 ? code : sign
    const __m512i bytes = _mm512_or_si512(signed_code, _mm512_srli_epi32(signed_code, 12));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16 * pair), _mm512_maskz_cvtepi32_epi8(0xffff, bytes));
  }
  return true;
}

#else

std::unique_ptr<const ShortTables> short_tables(Dtype, float) { return nullptr; }
bool quantise_short(const ShortTables&, const std::uint8_t*, std::uint8_t*, std::uint8_t*) { return false; }

#endif

}  // namespace kvcts::kernels::convert
