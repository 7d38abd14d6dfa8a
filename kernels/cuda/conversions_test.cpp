// Conversions by the device kernels' bodies against kernels/convert/element.hpp and block.hpp, element by element.
#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/testing/twin.hpp"
#include "kernels/poison.hpp"

namespace kvcts::cuda {
namespace {

using kernels::convert::bits_of;
using kernels::convert::decode;
using kernels::convert::encode;
using kernels::convert::float_of;
using layout::Dtype;
using testing::launch;
using testing::Memory;

u32 number(Dtype dtype) { return static_cast<u32>(dtype); }
u32 width(Dtype dtype) { return static_cast<u32>(layout::bits(dtype)); }

TEST(DeviceConvert, ConvertsEvery16BitInputToEveryDtype) {
  constexpr u64 count = 65536;
  for (const Dtype from : {Dtype::fp16, Dtype::bf16}) {
    Memory in(count * 2);
    for (u64 k = 0; k < count; ++k) reinterpret_cast<std::uint16_t*>(in.data())[k] = static_cast<std::uint16_t>(k);
    for (const Dtype to : layout::all_dtypes()) {
      Memory out(count * width(to) / 8);
      launch("kvcts_convert", ConvertArgs{in.data(), out.data(), count, number(from), width(from), number(to), width(to)},
             9);
      for (u64 k = 0; k < count; ++k) {
        ASSERT_EQ(load_code(out.data(), width(to), k), encode(to, decode(from, static_cast<u32>(k))))
            << layout::name(to) << ' ' << k;
      }
    }
  }
}

TEST(DeviceConvert, LeavesBytesPastAnOddCountUntouched) {
  Memory in(6), out(8, 0xff);
  for (u32 k = 0; k < 3; ++k) reinterpret_cast<std::uint16_t*>(in.data())[k] = 0x3c00;  // 1.0
  launch("kvcts_convert", ConvertArgs{in.data(), out.data(), 3, number(Dtype::fp16), 16, number(Dtype::e2m1), 4}, 1);
  EXPECT_EQ(out.data()[0], 0x22);
  EXPECT_EQ(out.data()[1], 0x02);
  EXPECT_EQ(out.data()[2], 0xff);
}

struct Rule {
  ScaleRule rule;
  Dtype code;
  u32 block;
  u32 scale_bytes;
};

/// Blocks of random numbers and one of zeros: quantised, and converted back.
struct Quantised {
  static constexpr u64 blocks = 300;
  static constexpr float global = 0.013F;

  Quantised(const Rule& of, Dtype from)
      : rule(of),
        wide(from),
        in(bytes(wide)),
        codes(bytes(rule.code)),
        scales(blocks * rule.scale_bytes),
        back(bytes(wide)) {
    kernels::fill_poison(42, 0, in.bytes());
    for (u64 k = 0; k < rule.block; ++k) store_pair(in.data(), width(wide), k, 0, 0, false);
    BlockArgs args;
    args.wide = in.data();
    args.codes = codes.data();
    args.scales = scales.data();
    args.blocks = blocks;
    args.block = rule.block;
    args.rule = rule.rule;
    args.wide_dtype = number(wide), args.wide_width = width(wide);
    args.code_dtype = number(rule.code), args.code_width = width(rule.code);
    args.global = global;
    launch("kvcts_quantise", args, 3);
    args.wide = back.data();
    launch("kvcts_dequantise", args, 3);
  }

  u64 bytes(Dtype dtype) const { return (blocks * rule.block * width(dtype) + 7) / 8; }
  u32 number_in(u64 element) { return decode(wide, load_code(in.data(), width(wide), element)); }
  u32 scale_of(u64 b) { return rule.scale_bytes == 4 ? reinterpret_cast<u32*>(scales.data())[b] : scales.data()[b]; }

  kernels::convert::BlockScale expected_scale(u64 b) {
    using namespace kernels::convert;
    u32 amax = 0;
    for (u64 k = 0; k < rule.block; ++k) amax = std::max(amax, number_in(b * rule.block + k) & 0x7fffffffu);
    if (rule.rule == ScaleRule::nvfp4) return nvfp4_scale(amax, global);
    if (rule.rule == ScaleRule::row) return row_scale(amax, rule.code);
    return mx_scale(amax, rule.code, rule.rule == ScaleRule::mx_down ? Rounding::down : Rounding::up);
  }
  float factor_back(u32 scale) const {
    if (rule.rule == ScaleRule::nvfp4) return float_of(decode(Dtype::e4m3fn, scale)) * global;
    return rule.rule == ScaleRule::row ? float_of(scale) : float_of(decode(Dtype::e8m0, scale));
  }

  Rule rule;
  Dtype wide;
  Memory in, codes, scales, back;
};

TEST(DeviceQuantise, FollowsEveryRuleOfTheContract) {
  using namespace kernels::convert;
  const std::vector<Rule> rules{{ScaleRule::nvfp4, Dtype::e2m1, 16, 1},  {ScaleRule::mx_down, Dtype::e4m3fn, 32, 1},
                                {ScaleRule::mx_up, Dtype::e2m1, 32, 1},  {ScaleRule::mx_down, Dtype::e2m1, 32, 1},
                                {ScaleRule::row, Dtype::e4m3fn, 128, 4}, {ScaleRule::row, Dtype::int8, 24, 4},
                                {ScaleRule::row, Dtype::e5m2, 7, 4}};
  for (const Rule& rule : rules) {
    for (const Dtype wide : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
      Quantised made(rule, wide);
      for (u64 b = 0; b < Quantised::blocks; ++b) {
        const BlockScale scale = made.expected_scale(b);
        ASSERT_EQ(made.scale_of(b), scale.code);
        for (u64 element = b * rule.block; element < (b + 1) * rule.block; ++element) {
          const u32 code = load_code(made.codes.data(), width(rule.code), element);
          ASSERT_EQ(code, encode_scaled(rule.code, made.number_in(element), scale.factor)) << element;
          ASSERT_EQ(load_code(made.back.data(), width(wide), element),
                    encode(wide, bits_of(float_of(decode(rule.code, code)) * made.factor_back(scale.code))));
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcts::cuda
