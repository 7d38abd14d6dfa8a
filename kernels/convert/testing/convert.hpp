// Whole tensors from one dtype to another, quantised and back, element by element: how tests compare element.hpp and
// block.hpp with NumPy and ml_dtypes. in and out must not overlap.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/convert/block.hpp"
#include "layout/dtype.hpp"
#include "layout/error.hpp"
#include "layout/scheme.hpp"

namespace kvcts::kernels::convert {

struct Options {
  Overflow overflow{Overflow::saturate};
  Rounding rounding{Rounding::down};  ///< of e8m0
  bool from_high_nibble_first{false};
  bool to_high_nibble_first{false};
  int threads{1};  ///< 0: all that this process may use
};

/// Bytes of n packed codes.
std::int64_t packed_bytes(layout::Dtype dtype, std::int64_t n);

/// `count` codes of `from` -> codes of `to`, both packed. A dtype to itself is a copy. Throws layout::Error, before writing,
/// unless `in` and `out` have exactly the bytes of `count` codes.
void convert(layout::Dtype from, std::span<const std::uint8_t> in, layout::Dtype to, std::span<std::uint8_t> out,
             std::int64_t count, const Options& options = {});

/// How elements share scales. Made by the functions below or from a scheme of the catalogue.
struct BlockRule {
  layout::Dtype element{layout::Dtype::e2m1};
  layout::Dtype scale{layout::Dtype::e4m3fn};
  std::int64_t block{nvfp4_block};    ///< elements per scale
  float global{1.0F};                 ///< nvfp4 only: the decoding factor g
  Rounding rounding{Rounding::down};  ///< mx only: down (OCP) or up (NVIDIA)
};
BlockRule nvfp4(float global);
BlockRule mxfp8(Rounding rounding = Rounding::down);
BlockRule mxfp4(Rounding rounding = Rounding::down);
/// One fp32 scale for `elements` codes of fp8 or int8.
BlockRule per_row(layout::Dtype element, std::int64_t elements);
/// The rule of a cache dtype with scales (cases/dtypes): group 0 is a row of `row` channels. Throws layout::Error for a
/// scheme without scales or of another kind.
BlockRule rule_of(const layout::Scheme& scheme, std::int64_t row, float global = 1.0F);

/// `blocks` blocks of fp32, fp16 or bf16 -> codes and scales, both packed (options: codes' nibble order, threads). Throws
/// layout::Error, before writing, when sizes disagree or the rule is of no known kind.
void quantise(const BlockRule& rule, layout::Dtype from, std::span<const std::uint8_t> in, std::span<std::uint8_t> codes,
              std::span<std::uint8_t> scales, std::int64_t blocks, const Options& options = {});
/// The inverse: element * scale, in one fp32 product (nvfp4: scale * global first), then as `to`.
void dequantise(const BlockRule& rule, std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                layout::Dtype to, std::span<std::uint8_t> out, std::int64_t blocks, const Options& options = {});

}  // namespace kvcts::kernels::convert
