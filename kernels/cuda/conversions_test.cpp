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

TEST(DeviceQuantise, FollowsEveryRuleOfTheContract) {
  using namespace kernels::convert;
  const std::vector<Rule> rules{{ScaleRule::nvfp4, Dtype::e2m1, 16, 1},  {ScaleRule::mx_down, Dtype::e4m3fn, 32, 1},
                                {ScaleRule::mx_up, Dtype::e2m1, 32, 1},  {ScaleRule::mx_down, Dtype::e2m1, 32, 1},
                                {ScaleRule::row, Dtype::e4m3fn, 128, 4}, {ScaleRule::row, Dtype::int8, 24, 4},
                                {ScaleRule::row, Dtype::e5m2, 7, 4}};
  constexpr u64 blocks = 300;
  const float global = 0.013F;
  for (const Rule& rule : rules) {
    for (const Dtype wide : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
      const u64 elements = blocks * rule.block;
      Memory in(elements * width(wide) / 8), codes((elements * width(rule.code) + 7) / 8), scales(blocks * rule.scale_bytes),
          back(elements * width(wide) / 8);
      kernels::fill_poison(42, 0, in.bytes());
      for (u64 k = 0; k < rule.block; ++k) store_pair(in.data(), width(wide), k, 0, 0, false);  // a block of zeros
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
      BlockArgs backwards = args;
      backwards.wide = back.data();
      launch("kvcts_dequantise", backwards, 3);
      for (u64 b = 0; b < blocks; ++b) {
        u32 amax = 0;
        for (u64 k = 0; k < rule.block; ++k) {
          amax = std::max(amax, decode(wide, load_code(in.data(), width(wide), b * rule.block + k)) & 0x7fffffffu);
        }
        const BlockScale scale = rule.rule == ScaleRule::nvfp4     ? nvfp4_scale(amax, global)
                                 : rule.rule == ScaleRule::row     ? row_scale(amax, rule.code)
                                 : rule.rule == ScaleRule::mx_down ? mx_scale(amax, rule.code, Rounding::down)
                                                                   : mx_scale(amax, rule.code, Rounding::up);
        const u32 stored = rule.scale_bytes == 4 ? reinterpret_cast<u32*>(scales.data())[b] : scales.data()[b];
        ASSERT_EQ(stored, scale.code);
        const float factor = rule.rule == ScaleRule::nvfp4 ? float_of(decode(Dtype::e4m3fn, stored)) * global
                             : rule.rule == ScaleRule::row ? float_of(stored)
                                                           : float_of(decode(Dtype::e8m0, stored));
        for (u64 k = 0; k < rule.block; ++k) {
          const u64 element = b * rule.block + k;
          const u32 x = decode(wide, load_code(in.data(), width(wide), element));
          const u32 code = load_code(codes.data(), width(rule.code), element);
          ASSERT_EQ(code, encode_scaled(rule.code, x, scale.factor)) << b << ' ' << k;
          ASSERT_EQ(load_code(back.data(), width(wide), element),
                    encode(wide, bits_of(float_of(decode(rule.code, code)) * factor)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcts::cuda
