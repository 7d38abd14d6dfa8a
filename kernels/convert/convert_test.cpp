// The element functions against the formats' definitions, and whole tensors against these. test_convert.py checks both
// against ml_dtypes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/convert/testing/convert.hpp"
#include "kernels/testing/reference.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels::convert {
namespace {

using layout::Dtype;
using Bytes = std::vector<std::uint8_t>;
using Words = std::vector<std::uint32_t>;
constexpr Overflow overflows[]{Overflow::saturate, Overflow::special};

/// fp32 words that matter: every exponent with the fractions at which some format rounds, both signs, and noise.
Words telling_words() {
  Words words;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (int mantissa : {0, 1, 2, 3, 7, 10, 23}) {
      const std::uint32_t step = 0x800000u >> mantissa;
      for (std::uint32_t k = 0; k < 16; ++k) {
        for (std::uint32_t about : {0u, step / 2, step / 2 + 1, step / 2 - 1, step - 1}) {
          words.push_back(exponent << 23 | ((k * step + about) & 0x7fffffu));
        }
      }
    }
  }
  std::mt19937 noise(4);
  for (int i = 0; i < 200'000; ++i) words.push_back(static_cast<std::uint32_t>(noise()));
  const std::size_t n = words.size();
  for (std::size_t i = 0; i < n; ++i) words.push_back(words[i] ^ fp32_sign);
  return words;
}

std::uint32_t code_at(Dtype dtype, const Bytes& codes, std::size_t i) {
  const int bits = layout::bits(dtype);
  if (bits == 4) return (codes[i / 2] >> (i % 2 * 4)) & 0xfu;
  std::uint32_t code = 0;
  std::memcpy(&code, codes.data() + i * static_cast<std::size_t>(bits / 8), static_cast<std::size_t>(bits / 8));
  return code;
}

/// All codes of a dtype of at most 16 bits, packed.
Bytes all_codes(Dtype dtype) {
  const int bits = layout::bits(dtype);
  Bytes out;
  if (bits == 4) {
    for (unsigned i = 0; i < 16; i += 2) out.push_back(static_cast<std::uint8_t>(i | (i + 1) << 4));
    return out;
  }
  for (unsigned i = 0; i < 1u << bits; ++i) {
    out.push_back(static_cast<std::uint8_t>(i));
    if (bits == 16) out.push_back(static_cast<std::uint8_t>(i >> 8));
  }
  return out;
}

Bytes as_bytes(const Words& words) {
  Bytes bytes(words.size() * 4);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

TEST(ConvertElement, DecodesByTheDefinitionOfTheFormat) {
  for (const Dtype dtype : layout::all_dtypes()) {
    if (dtype == Dtype::fp32) continue;
    for (std::uint32_t code = 0; code < 1u << layout::bits(dtype); ++code) {
      const double meant = reference::meaning(dtype, code);
      const auto found = static_cast<double>(float_of(decode(dtype, code)));
      if (std::isnan(meant)) {
        EXPECT_EQ(decode(dtype, code), fp32_nan) << layout::name(dtype) << ' ' << code;
      } else {
        EXPECT_EQ(found, meant) << layout::name(dtype) << ' ' << code;
        EXPECT_EQ(std::signbit(found), std::signbit(meant)) << layout::name(dtype) << ' ' << code;
      }
    }
  }
}

TEST(ConvertElement, RoundTripsEveryNumberOfAFormat) {
  for (const Dtype dtype : layout::all_dtypes()) {
    if (dtype == Dtype::fp32) continue;
    for (std::uint32_t code = 0; code < 1u << layout::bits(dtype); ++code) {
      const std::uint32_t bits = decode(dtype, code);
      for (const Overflow overflow : overflows) {
        const bool infinite = (bits & ~fp32_sign) == fp32_infinity && overflow == Overflow::saturate;
        if (bits == fp32_nan || infinite) continue;
        EXPECT_EQ(encode(dtype, bits, overflow), code) << layout::name(dtype);
      }
    }
  }
}

TEST(ConvertElement, EncodesToTheNearestNumber) {
  // By distance in exact arithmetic, independent of how encode() rounds. Every target's neighbours are its codes +- 1.
  const Words words = telling_words();
  for (const Dtype dtype :
       {Dtype::fp16, Dtype::bf16, Dtype::e4m3fn, Dtype::e5m2, Dtype::e4m3fnuz, Dtype::e5m2fnuz, Dtype::e2m1}) {
    const Format format = format_of(dtype);
    for (const std::uint32_t word : words) {
      const auto value = static_cast<double>(float_of(word & ~fp32_sign));
      if (!(value <= 2 * reference::meaning(dtype, format.largest())))
        continue;  // saturated; a double cannot say by how much
      const std::uint32_t code = encode(dtype, word) & format.top();
      const double here = std::fabs(value - reference::meaning(dtype, code));
      if (code > 0) {
        const double lower = std::fabs(value - reference::meaning(dtype, code - 1));
        ASSERT_TRUE(here < lower || (here == lower && code % 2 == 0))
            << layout::name(dtype) << ' ' << value << " -> " << code;
      }
      if (code < format.largest()) {
        const double upper = std::fabs(value - reference::meaning(dtype, code + 1));
        ASSERT_TRUE(here < upper || (here == upper && code % 2 == 0))
            << layout::name(dtype) << ' ' << value << " -> " << code;
      }
    }
  }
}

TEST(ConvertElement, HandlesInfinitiesAndNans) {
  const std::uint32_t inf = fp32_infinity, minus_inf = fp32_infinity | fp32_sign, minus_nan = 0xffc00001u;
  using enum Dtype;
  EXPECT_EQ(encode(e4m3fn, inf), 0x7eu);
  EXPECT_EQ(encode(e4m3fn, minus_inf), 0xfeu);
  EXPECT_EQ(encode(e4m3fn, minus_inf, Overflow::special), 0x7fu);
  EXPECT_EQ(encode(e4m3fn, minus_nan), 0x7fu);
  EXPECT_EQ(encode(e5m2, minus_inf), 0xfbu);
  EXPECT_EQ(encode(e5m2, minus_inf, Overflow::special), 0xfcu);
  EXPECT_EQ(encode(e5m2, minus_nan), 0x7fu);
  for (const Dtype fnuz : {e4m3fnuz, e5m2fnuz}) {
    EXPECT_EQ(encode(fnuz, minus_inf), 0xffu);
    EXPECT_EQ(encode(fnuz, inf, Overflow::special), 0x80u);
    EXPECT_EQ(encode(fnuz, minus_nan), 0x80u);
    EXPECT_EQ(encode(fnuz, fp32_sign), 0u) << "there is no -0";
  }
  EXPECT_EQ(encode(e2m1, minus_inf, Overflow::special), 0xfu);
  EXPECT_EQ(encode(e2m1, minus_nan), 0x7u);
  EXPECT_EQ(encode(fp16, inf), 0x7bffu);
  EXPECT_EQ(encode(fp16, inf, Overflow::special), 0x7c00u);
  EXPECT_EQ(encode(bf16, minus_nan), 0x7fffu);
  EXPECT_EQ(encode(int8, minus_inf), 0x80u);
  EXPECT_EQ(encode(int8, minus_nan), 0u);
  EXPECT_EQ(encode(uint8, minus_inf), 0u);
  EXPECT_EQ(encode(int4, inf), 7u);
  EXPECT_EQ(encode(e8m0, inf), 0xfeu);
  EXPECT_EQ(encode(e8m0, inf, Overflow::special), 0xffu);
  EXPECT_EQ(encode(e8m0, minus_nan), 0xffu);
  EXPECT_EQ(encode(e8m0, fp32_sign), 0u);
}

/// Blocks of ordinary numbers, and some with zeros, denormals, infinities and NaNs.
Words block_words(std::size_t block, std::size_t blocks) {
  std::mt19937 noise(7);
  std::normal_distribution<float> normal;
  Words words;
  const std::uint32_t odd[]{0u,          fp32_sign,   1u,          0x00400000u, fp32_infinity,
                            0xff800000u, 0x7fc00000u, 0xffffffffu, 0x7f7fffffu, 0x477fe000u};
  for (std::size_t b = 0; b < blocks; ++b) {
    const int kind = static_cast<int>(noise() % 8);
    for (std::size_t i = 0; i < block; ++i) {
      const float scale = std::ldexp(1.0F, static_cast<int>(b % 61) - 30);
      std::uint32_t word = bits_of(normal(noise) * scale);
      if (kind == 0) word = odd[noise() % 10];
      if (kind == 1 && noise() % 8 == 0) word = odd[noise() % 10];
      if (kind == 2) word = noise() & fp32_sign;
      if (kind == 3) word = bits_of(std::ldexp(0.25F * static_cast<float>(noise() % 25), static_cast<int>(b % 7)));  // ties
      if (kind == 4) word = static_cast<std::uint32_t>(noise());
      words.push_back(word);
    }
  }
  return words;
}

TEST(Convert, ConvertsAnyDtypeToAnyOtherInEitherNibbleOrder) {
  for (const Dtype from : layout::all_dtypes()) {
    const Bytes codes = from == Dtype::fp32 ? as_bytes(telling_words()) : all_codes(from);
    const std::int64_t n = static_cast<std::int64_t>(codes.size()) * 8 / layout::bits(from);
    for (const Dtype to : layout::all_dtypes()) {
      for (const int variant : {0, 1, 2, 3}) {
        Options options;
        options.threads = variant;
        options.overflow = overflows[variant % 2];
        options.rounding = static_cast<Rounding>(variant % 3);
        options.from_high_nibble_first = (variant & 1) != 0;
        options.to_high_nibble_first = (variant & 2) != 0;
        Bytes out(static_cast<std::size_t>(packed_bytes(to, n)));
        convert(from, codes, to, out, n, options);
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
          const bool from_swapped = options.from_high_nibble_first && layout::bits(from) == 4;
          const bool to_swapped = options.to_high_nibble_first && layout::bits(to) == 4;
          const std::uint32_t code = code_at(from, codes, from_swapped ? i ^ 1 : i);
          const std::uint32_t expected =
              from == to ? code : encode(to, decode(from, code), options.overflow, options.rounding);
          ASSERT_EQ(code_at(to, out, to_swapped ? i ^ 1 : i), expected)
              << layout::name(from) << " -> " << layout::name(to) << " code " << i << " variant " << variant;
        }
      }
    }
  }
}

TEST(Quantise, WholeTensorsMatchBlocksAndConvertBack) {
  for (const BlockRule& rule : {nvfp4(0.003F), mxfp8(), mxfp8(Rounding::up), mxfp4(), mxfp4(Rounding::up),
                                per_row(Dtype::e4m3fn, 128), per_row(Dtype::int8, 100), per_row(Dtype::e5m2fnuz, 5000)}) {
    const auto block = static_cast<std::size_t>(rule.block);
    const std::size_t blocks = 700;
    const Words words = block_words(block, blocks);
    const auto n = static_cast<std::int64_t>(words.size());
    for (const bool high : {false, true}) {
      const Options options{.from_high_nibble_first = high, .to_high_nibble_first = high, .threads = 2};
      Bytes codes(static_cast<std::size_t>(packed_bytes(rule.element, n))),
          scales(static_cast<std::size_t>(packed_bytes(rule.scale, blocks)));
      quantise(rule, Dtype::fp32, as_bytes(words), codes, scales, blocks, options);
      Bytes back(words.size() * 2);
      dequantise(rule, codes, scales, Dtype::bf16, back, blocks, options);
      for (std::size_t b = 0; b < blocks; ++b) {
        std::uint32_t most = 0;
        for (std::size_t i = 0; i < block; ++i) most = std::max(most, words[b * block + i] & ~fp32_sign);
        const BlockScale one = rule.scale == Dtype::e4m3fn ? nvfp4_scale(most, rule.global)
                               : rule.scale == Dtype::e8m0 ? mx_scale(most, rule.element, rule.rounding)
                                                           : row_scale(most, rule.element);
        ASSERT_EQ(code_at(rule.scale, scales, b), one.code);
        float scale = float_of(decode(rule.scale, one.code));
        if (rule.scale == Dtype::e4m3fn) scale *= rule.global;
        for (std::size_t i = b * block; i < (b + 1) * block; ++i) {
          const std::uint32_t code = code_at(rule.element, codes, high && rule.element == Dtype::e2m1 ? i ^ 1 : i);
          ASSERT_EQ(code, encode_scaled(rule.element, words[i], one.factor)) << layout::name(rule.element) << ' ' << i;
          const std::uint32_t value = bits_of(float_of(decode(rule.element, code)) * scale);
          ASSERT_EQ(code_at(Dtype::bf16, back, i), encode(Dtype::bf16, value));
        }
      }
    }
  }
}

TEST(Quantise, EveryCatalogueSchemeHasItsRule) {
  EXPECT_EQ(rule_of({"nvfp4", Dtype::e2m1, layout::ScaleSpec{Dtype::e4m3fn, 16}, Dtype::fp32}, 128, 0.5F).global, 0.5F);
  EXPECT_EQ(rule_of({"mxfp8", Dtype::e4m3fn, layout::ScaleSpec{Dtype::e8m0, 32}, {}}, 128).block, 32);
  EXPECT_EQ(rule_of({"fp8_per_token_head", Dtype::e4m3fn, layout::ScaleSpec{Dtype::fp32, 0}, {}}, 96).block, 96);
  EXPECT_THROW(rule_of({"bf16", Dtype::bf16, {}, {}}, 128), layout::Error);
  EXPECT_THROW(rule_of({"odd", Dtype::e2m1, layout::ScaleSpec{Dtype::fp16, 16}, {}}, 128), layout::Error);
}

TEST(Quantise, RefusesMismatchesBeforeWriting) {
  Bytes in(64), codes(16, 0xa5), scales(2, 0xa5);
  const auto refused = [&](const BlockRule& rule, std::size_t in_bytes, std::size_t code_bytes, std::size_t scale_bytes,
                           Dtype from) {
    EXPECT_THROW(quantise(rule, from, std::span(in).first(in_bytes), std::span(codes).first(code_bytes),
                          std::span(scales).first(scale_bytes), 2),
                 layout::Error);
    EXPECT_EQ(codes, Bytes(16, 0xa5));
    EXPECT_EQ(scales, Bytes(2, 0xa5));
  };
  quantise(nvfp4(1), Dtype::fp16, in, codes, scales, 2);
  codes.assign(16, 0xa5);
  scales.assign(2, 0xa5);
  refused(nvfp4(1), 63, 16, 2, Dtype::fp16);
  refused(nvfp4(1), 64, 15, 2, Dtype::fp16);
  refused(nvfp4(1), 64, 16, 1, Dtype::fp16);
  refused(nvfp4(0), 64, 16, 2, Dtype::fp16);
  refused(nvfp4(std::nanf("")), 64, 16, 2, Dtype::fp16);
  refused(mxfp4(Rounding::nearest), 64, 16, 2, Dtype::fp16);
  refused(nvfp4(1), 64, 16, 2, Dtype::e4m3fn);
  EXPECT_THROW(convert(Dtype::fp16, in, Dtype::int8, codes, 32), layout::Error);
  EXPECT_THROW(convert(Dtype::fp16, in, Dtype::int8, codes, -1), layout::Error);
  EXPECT_EQ(codes, Bytes(16, 0xa5));
}

}  // namespace
}  // namespace kvcts::kernels::convert
