#include "kernels/convert/testing/convert.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/parallel.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels::convert {
namespace {

using layout::Dtype;
using layout::Error;

/// What a thread takes at once: whole bytes, also of nibbles.
constexpr std::size_t grain = 2048;

void need_bytes(const char* what, std::size_t found, std::int64_t expected, std::int64_t n, Dtype dtype) {
  if (std::cmp_equal(found, expected)) return;
  throw Error(std::string(what) + " must have the " + std::to_string(expected) + " bytes of " + std::to_string(n) +
              " codes of " + std::string(layout::name(dtype)) + ", found " + std::to_string(found) +
              " bytes; pass a span of that size");
}

/// Which nibble of its byte code i has.
std::size_t nibble(std::size_t i, bool high_first) { return i % 2 ^ (high_first ? 1u : 0u); }

std::uint32_t code_at(Dtype dtype, std::span<const std::uint8_t> codes, std::size_t i, bool high_first) {
  if (layout::bits(dtype) == 4) return codes[i / 2] >> (4 * nibble(i, high_first)) & 0xfu;
  const auto bytes = static_cast<std::size_t>(layout::bits(dtype) / 8);
  std::uint32_t code = 0;
  std::memcpy(&code, codes.data() + i * bytes, bytes);
  return code;
}

/// In order: the first code of a byte clears the other nibble.
void put_code(Dtype dtype, std::span<std::uint8_t> codes, std::size_t i, bool high_first, std::uint32_t code) {
  if (layout::bits(dtype) == 4) {
    const std::uint32_t kept = i % 2 == 0 ? 0 : codes[i / 2];
    codes[i / 2] = static_cast<std::uint8_t>(kept | code << (4 * nibble(i, high_first)));
    return;
  }
  const auto bytes = static_cast<std::size_t>(layout::bits(dtype) / 8);
  std::memcpy(codes.data() + i * bytes, &code, bytes);
}

enum class Kind : std::uint8_t { nvfp4, mx, row };

Kind kind_of(const BlockRule& rule) {
  const bool fp8 = rule.element >= Dtype::e4m3fn && rule.element <= Dtype::e5m2fnuz;
  if (rule.element == Dtype::e2m1 && rule.scale == Dtype::e4m3fn && rule.block == nvfp4_block) return Kind::nvfp4;
  if ((rule.element == Dtype::e2m1 || rule.element == Dtype::e4m3fn) && rule.scale == Dtype::e8m0 &&
      rule.block == mx_block) {
    return Kind::mx;
  }
  if ((fp8 || rule.element == Dtype::int8) && rule.scale == Dtype::fp32 && rule.block >= 1) return Kind::row;
  throw Error(
      "blocks of " + std::to_string(rule.block) + " " + std::string(layout::name(rule.element)) + " with scales of " +
      std::string(layout::name(rule.scale)) +
      ": expected nvfp4 (16 e2m1, e4m3fn), mx (32 e2m1 or e4m3fn, e8m0) or a row of fp8 or int8 with fp32; use nvfp4(), "
      "mxfp8(), mxfp4() or per_row()");
}

void check_blocks(const BlockRule& rule, Kind kind, Dtype full, std::size_t full_bytes, std::size_t codes,
                  std::size_t scales, std::int64_t blocks) {
  if (full != Dtype::fp32 && full != Dtype::fp16 && full != Dtype::bf16) {
    throw Error("quantised blocks are made of and read as fp32, fp16 or bf16, found " + std::string(layout::name(full)) +
                "; convert() to one of these");
  }
  if (kind == Kind::nvfp4 && !(rule.global > 0.0F && bits_of(rule.global) < fp32_infinity)) {
    throw Error("the global scale of nvfp4 must be a positive finite number, found " + std::to_string(rule.global) +
                "; it is the decoding factor that the cache stores");
  }
  if (kind == Kind::mx && rule.rounding == Rounding::nearest) {
    throw Error("MX scales are rounded down (OCP) or up (NVIDIA), found nearest; choose one of these");
  }
  if (blocks < 0 || blocks > INT64_MAX / 32 / rule.block) {
    throw Error("the number of blocks must be in [0, " + std::to_string(INT64_MAX / 32 / rule.block) + "], found " +
                std::to_string(blocks));
  }
  const std::int64_t n = blocks * rule.block;
  need_bytes("full-width elements", full_bytes, packed_bytes(full, n), n, full);
  need_bytes("codes", codes, packed_bytes(rule.element, n), n, rule.element);
  need_bytes("scales", scales, packed_bytes(rule.scale, blocks), blocks, rule.scale);
}

BlockScale scale_of(const BlockRule& rule, Kind kind, std::uint32_t most) {
  if (kind == Kind::nvfp4) return nvfp4_scale(most, rule.global);
  return kind == Kind::mx ? mx_scale(most, rule.element, rule.rounding) : row_scale(most, rule.element);
}

std::size_t blocks_at_once(const BlockRule& rule) {
  return std::max<std::size_t>(1, grain / static_cast<std::size_t>(rule.block));
}

}  // namespace

std::int64_t packed_bytes(Dtype dtype, std::int64_t n) {
  const int bits = layout::bits(dtype);
  return bits == 4 ? (n + 1) / 2 : n * (bits / 8);
}

void convert(Dtype from, std::span<const std::uint8_t> in, Dtype to, std::span<std::uint8_t> out, std::int64_t count,
             const Options& options) {
  if (count < 0 || count > INT64_MAX / 4)
    throw Error("the number of codes must be in [0, 2^61), found " + std::to_string(count));
  need_bytes("the input", in.size(), packed_bytes(from, count), count, from);
  need_bytes("the output", out.size(), packed_bytes(to, count), count, to);
  parallel_ranges(options.threads, static_cast<std::size_t>(count), grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t code = code_at(from, in, i, options.from_high_nibble_first);
      put_code(to, out, i, options.to_high_nibble_first,
               from == to ? code : encode(to, decode(from, code), options.overflow, options.rounding));
    }
  });
}

BlockRule nvfp4(float global) { return {Dtype::e2m1, Dtype::e4m3fn, nvfp4_block, global, Rounding::down}; }
BlockRule mxfp8(Rounding rounding) { return {Dtype::e4m3fn, Dtype::e8m0, mx_block, 1.0F, rounding}; }
BlockRule mxfp4(Rounding rounding) { return {Dtype::e2m1, Dtype::e8m0, mx_block, 1.0F, rounding}; }
BlockRule per_row(Dtype element, std::int64_t elements) { return {element, Dtype::fp32, elements, 1.0F, Rounding::down}; }

BlockRule rule_of(const layout::Scheme& scheme, std::int64_t row, float global) {
  if (!scheme.scale)
    throw Error("dtype " + scheme.name + " has no scales: convert() its elements instead of quantising them");
  BlockRule rule{scheme.data, scheme.scale->dtype, scheme.scale->group == 0 ? row : scheme.scale->group,
                 scheme.global_scale ? global : 1.0F, Rounding::down};
  kind_of(rule);
  return rule;
}

void quantise(const BlockRule& rule, Dtype from, std::span<const std::uint8_t> in, std::span<std::uint8_t> codes,
              std::span<std::uint8_t> scales, std::int64_t blocks, const Options& options) {
  const Kind kind = kind_of(rule);
  check_blocks(rule, kind, from, in.size(), codes.size(), scales.size(), blocks);
  const auto block = static_cast<std::size_t>(rule.block);
  parallel_ranges(options.threads, static_cast<std::size_t>(blocks), blocks_at_once(rule),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t b = begin; b < end; ++b) {
                      const auto word = [&](std::size_t i) { return decode(from, code_at(from, in, i, false)); };
                      std::uint32_t most = 0;
                      for (std::size_t i = b * block; i < (b + 1) * block; ++i) most = std::max(most, word(i) & ~fp32_sign);
                      const BlockScale scale = scale_of(rule, kind, most);
                      put_code(rule.scale, scales, b, false, scale.code);
                      for (std::size_t i = b * block; i < (b + 1) * block; ++i)
                        put_code(rule.element, codes, i, options.to_high_nibble_first,
                                 encode_scaled(rule.element, word(i), scale.factor));
                    }
                  });
}

void dequantise(const BlockRule& rule, std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, Dtype to,
                std::span<std::uint8_t> out, std::int64_t blocks, const Options& options) {
  const Kind kind = kind_of(rule);
  check_blocks(rule, kind, to, out.size(), codes.size(), scales.size(), blocks);
  const auto block = static_cast<std::size_t>(rule.block);
  parallel_ranges(
      options.threads, static_cast<std::size_t>(blocks), blocks_at_once(rule), [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin * block; i < end * block; ++i) {
          const float stored = float_of(decode(rule.scale, code_at(rule.scale, scales, i / block, false)));
          const float factor = kind == Kind::nvfp4 ? times(stored, rule.global) : stored;
          const std::uint32_t code = code_at(rule.element, codes, i, options.from_high_nibble_first);
          put_code(
              to, out, i, false,
              encode(to, bits_of(times(float_of(decode(rule.element, code)), factor)), options.overflow, options.rounding));
        }
      });
}

}  // namespace kvcts::kernels::convert
