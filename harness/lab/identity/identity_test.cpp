// Can every byte be identified? Three claims, verified by counting: names have unique signatures; units that code
// under test can move collide in the deciding passes as rarely as computed; every bit pattern travels.
// With KVCTS_IDENTITY_ROWS in the environment the counts are printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <set>

#include <fmt/format.h>

#include "diagnose/attributions.hpp"
#include "kernels/tag.hpp"
#include "scene/machine/copy_program.hpp"
#include "scene/machine/sequence.hpp"
#include "scene/numbers.hpp"
#include "scene/testing/scenarios.hpp"

namespace kvcts::scenario {
namespace {

using layout::Component;
using layout::Dtype;

constexpr std::uint64_t seed = 20;

void print_row(const std::string& row) {
  if (std::getenv("KVCTS_IDENTITY_ROWS") != nullptr) std::cout << "row: " << row << std::endl;
}

// ---- unique decoding -----------------------------------------------------------------------------------------------

struct Crowd {
  std::int64_t data{0}, scales{0}, globals{0}, poison{0};
  std::int64_t colliding{0};
};

// Names of a box of coordinates along all axes, in all components, and of poison; then their sorted signatures.
class Decoding : public ::testing::TestWithParam<Dtype> {};

TEST_P(Decoding, NoTwoSymbolsShareASignature) {
  const Dtype dtype = GetParam();
  const int width = layout::bits(dtype);
  const std::int64_t step = width == 4 ? 2 : 1, channels = 256 * 8 / width;
  SymbolTable symbols;
  Crowd crowd;
  const auto row = [&](Component component, std::int64_t kv, std::int64_t layer, std::int64_t token, std::int64_t head,
                       std::uint32_t generation, std::int64_t n) {
    Symbol symbol{.kind = Symbol::Kind::tag,
                  .component = component,
                  .dtype = dtype,
                  .generation = generation,
                  .kv = kv,
                  .layer = layer,
                  .token = token,
                  .head = head};
    std::int64_t bytes = 0;
    for (symbol.channel = 0; symbol.channel < n; symbol.channel += step) {
      for (symbol.byte = 0; symbol.byte < std::max(width / 8, 1); ++symbol.byte, ++bytes) symbols.intern(symbol);
    }
    return bytes;
  };
  for (std::int64_t kv = 0; kv < 2; ++kv) {
    for (std::int64_t layer = 0; layer < 4; ++layer) {
      for (std::int64_t head = 0; head < 4; ++head) {
        for (std::int64_t token = 0; token < 32; ++token) {
          for (std::uint32_t generation = 1; generation <= 4; ++generation) {
            crowd.data += row(Component::data, kv, layer, token, head, generation, channels);
            crowd.scales += row(Component::scale, kv, layer, token, head, generation, channels);
          }
        }
      }
    }
    for (std::int64_t layer = 0; layer < 64; ++layer) {
      for (std::uint32_t generation = 1; generation <= 32; ++generation)
        crowd.globals += row(Component::global_scale, kv, layer, 0, 0, generation, step);
    }
  }
  std::vector<Buffer> buffers(4);
  for (Buffer& b : buffers) {
    b.ordinal = static_cast<int>(&b - buffers.data()), b.poison_number = static_cast<std::uint32_t>(b.ordinal);
    b.side = b.ordinal % 2 == 0 ? "producer" : "consumer";
    b.guard_below = 4096;
    for (std::int64_t offset = -4096; offset < 65536; ++offset, ++crowd.poison)
      symbols.intern({.kind = Symbol::Kind::poison, .buffer = b.ordinal, .offset = offset});
  }
  for (int i = 0; i < 256; ++i) symbols.intern({.kind = Symbol::Kind::constant, .byte = static_cast<std::uint8_t>(i)});

  std::vector<SymbolId> ids;
  symbols.each([&](SymbolId id) {
    if (id != hole && id != unknown) ids.push_back(id);
  });
  ASSERT_GE(crowd.data, 1'000'000);
  ASSERT_EQ(static_cast<std::int64_t>(ids.size()), crowd.data + crowd.scales + crowd.globals + crowd.poison + 256);
  std::vector<std::uint64_t> signatures(ids.size(), 0);
  for (int pass = 0; pass < naming_passes; ++pass) {
    Rendering rendering(symbols, buffers, seed, pass);
    for (std::size_t i = 0; i < ids.size(); ++i) signatures[i] = extend_signature(signatures[i], rendering.byte(ids[i]));
  }
  std::sort(signatures.begin(), signatures.end());
  for (std::size_t i = 1; i < signatures.size(); ++i) crowd.colliding += signatures[i] == signatures[i - 1];
  EXPECT_EQ(crowd.colliding, 0);
  print_row(fmt::format("| {} | {} | {} | {} | {} | {} |", layout::name(dtype), crowd.data, crowd.scales, crowd.globals,
                        crowd.poison, crowd.colliding));
}
INSTANTIATE_TEST_SUITE_P(Identity, Decoding, ::testing::ValuesIn(layout::all_dtypes()),
                         [](const auto& p) { return std::string(layout::name(p.param)); });

// Bits of one byte of a code that ever change between passes: its contribution to a signature.
int bits_of_byte(Dtype dtype, Component component, int byte) {
  Symbol symbol{.kind = Symbol::Kind::tag,
                .component = component,
                .dtype = dtype,
                .generation = 1,
                .layer = 2,
                .token = 3,
                .head = 1,
                .channel = 4};
  std::uint32_t ones = 0, zeros = 0;
  for (int pass = 0; pass < 256; ++pass) {
    std::uint32_t code = content_code(symbol, seed, pass);
    if (layout::bits(dtype) == 4) {
      Symbol odd = symbol;
      ++odd.channel;
      code |= content_code(odd, seed, pass) << 4;
    }
    ones |= code, zeros |= ~code;
  }
  return std::popcount((ones & zeros) >> (8 * byte) & 0xff);
}

TEST(Identity, ASignatureHasRoomForItsSymbols) {
  for (Dtype dtype : layout::all_dtypes()) {
    for (Component component : {Component::data, Component::scale}) {
      const int bytes = std::max(layout::bits(dtype) / 8, 1);
      int all = 0, least = 8;
      for (int byte = 0; byte < bytes; ++byte) {
        const int bits = bits_of_byte(dtype, component, byte);
        all += bits;
        least = std::min(least, bits);
      }
      EXPECT_EQ(all, kernels::entropy_bits(dtype, component) * (layout::bits(dtype) == 4 ? 2 : 1))
          << "what the tag's contract says";
      const int total = std::min(least * naming_passes, 64);
      // Pairs among 2^20 names that agree by chance: (2^20)^2 / 2 / 2^total.
      EXPECT_LE(39 - total, -9);
      print_row(fmt::format("| {} | {} | {} | {} | 2^{} |", layout::name(dtype), layout::name(component), least, total,
                            39 - total));
    }
  }
}

// ---- deciding passes -----------------------------------------------------------------------------------------------

TEST(Identity, DecidingPassesMakeACollisionRarerThanTwoToTheMinus64) {
  for (Dtype dtype : layout::all_dtypes()) {
    for (Component component : {Component::data, Component::scale}) {
      const int entropy = kernels::entropy_bits(dtype, component);
      std::string row = fmt::format("| {} | {} | {} |", layout::name(dtype), layout::name(component), entropy);
      for (std::int64_t unit : {1, 4, 8, 16, 64}) {
        const int passes = kernels::deciding_passes(dtype, unit, component);
        EXPECT_GE(passes * unit * entropy, 64);
        EXPECT_LT((passes - 1) * unit * entropy, 64) << "one pass fewer would not do";
        row += fmt::format(" {} (2^-{}) |", passes, passes * unit * entropy);
      }
      print_row(row);
    }
  }
}

struct Trial {
  Dtype dtype;
  Component component;
  std::int64_t unit;
  int passes;
};

class Collisions : public ::testing::TestWithParam<Trial> {};

// Two units that differ in one axis agree in `passes` passes of a scenario as often as 2^-(unit * entropy * passes).
// Scales carry a digit of the coordinate that always distinguishes neighbours; they are compared four apart, where it
// does not help.
TEST_P(Collisions, AreAsRareAsTheArithmeticSays) {
  const Trial t = GetParam();
  constexpr std::int64_t trials = 1 << 18;
  const std::int64_t by = t.component == Component::data ? 1 : 4;
  std::vector<std::uint64_t> seeds;
  for (int pass = 0; pass < t.passes; ++pass) seeds.push_back(pass_seed(seed, pass));
  std::int64_t agree = 0, compared = 0;
  for (int axis = 0; axis < 5; ++axis) {
    for (std::int64_t i = 0; i < trials; ++i) {
      kernels::RowId a{t.component, i & 1, i >> 1 & 31, i >> 6 & 7, i >> 3, static_cast<std::uint32_t>(1 + (i >> 9))};
      kernels::RowId b = a;
      std::int64_t from = (i & 7) * t.unit, to = from;
      switch (axis) {
        case 0:
          b.layer += by;
          break;
        case 1:
          b.token += by;
          break;
        case 2:
          b.head += by;
          break;
        case 3:
          b.generation += 1;
          break;
        default:
          to += std::max(t.unit, by) / by * by;
          break;
      }
      bool same = true;
      for (std::size_t pass = 0; pass < seeds.size() && same; ++pass) {
        const std::uint64_t x = kernels::row_key({seeds[pass], 0, 0}, a), y = kernels::row_key({seeds[pass], 0, 0}, b);
        for (std::int64_t c = 0; c < t.unit && same; ++c)
          same = kernels::tag_code(x, a, t.dtype, from + c) == kernels::tag_code(y, b, t.dtype, to + c);
      }
      agree += same;
      ++compared;
    }
  }
  const int bits = static_cast<int>(t.unit) * t.passes * kernels::entropy_bits(t.dtype, t.component);
  const double expected = std::ldexp(static_cast<double>(compared), -bits), sigma = std::sqrt(expected);
  EXPECT_NEAR(static_cast<double>(agree), expected, 5 * sigma + 1);
  print_row(fmt::format("| {} | {} | {} | {} | 2^-{} | {:.0f} | {} |", layout::name(t.dtype), layout::name(t.component),
                        t.unit, t.passes, bits, expected, agree));
}
const std::vector<Trial> trials{
    {Dtype::e2m1, Component::data, 1, 1},   {Dtype::e2m1, Component::data, 1, 2},    {Dtype::e2m1, Component::data, 1, 4},
    {Dtype::e2m1, Component::data, 2, 2},   {Dtype::int4, Component::scale, 1, 8},   {Dtype::int4, Component::scale, 1, 14},
    {Dtype::e4m3fn, Component::data, 1, 1}, {Dtype::e4m3fn, Component::data, 1, 2},  {Dtype::e4m3fn, Component::data, 1, 3},
    {Dtype::e4m3fn, Component::data, 3, 1}, {Dtype::e4m3fn, Component::scale, 1, 1}, {Dtype::e4m3fn, Component::scale, 1, 4},
    {Dtype::e8m0, Component::scale, 1, 5},  {Dtype::e5m2, Component::data, 2, 1},    {Dtype::int8, Component::data, 1, 1},
    {Dtype::int8, Component::data, 1, 2},   {Dtype::uint8, Component::data, 2, 1},   {Dtype::bf16, Component::data, 1, 1},
    {Dtype::fp16, Component::scale, 1, 1},  {Dtype::fp32, Component::data, 1, 1},
};
INSTANTIATE_TEST_SUITE_P(Identity, Collisions, ::testing::ValuesIn(trials), [](const auto& p) {
  return fmt::format("{}_{}_{}_in_{}", layout::name(p.param.dtype), layout::name(p.param.component), p.param.unit,
                     p.param.passes);
});

// ---- every bit pattern ---------------------------------------------------------------------------------------------

struct Patterns {
  std::size_t all{0};
  std::int64_t nan{0}, infinite{0}, negative_zero{0}, subnormal{0};
};

bool is_subnormal(Dtype dtype, std::uint32_t code) {
  int mantissa = 0;
  switch (dtype) {
    case Dtype::fp32:
      mantissa = 23;
      break;
    case Dtype::fp16:
      mantissa = 10;
      break;
    case Dtype::bf16:
      mantissa = 7;
      break;
    case Dtype::e4m3fn:
    case Dtype::e4m3fnuz:
      mantissa = 3;
      break;
    case Dtype::e5m2:
    case Dtype::e5m2fnuz:
      mantissa = 2;
      break;
    case Dtype::e2m1:
      mantissa = 1;
      break;
    default:
      return false;  // integers and powers of two
  }
  const int width = layout::bits(dtype);
  const std::uint32_t magnitude = code & ((std::uint32_t{1} << (width - 1)) - 1);
  return magnitude != 0 && magnitude >> mantissa == 0;
}

class BitPatterns : public ::testing::TestWithParam<Dtype> {};

// Writes content `codes` and moves it to another layout with the machine, in one pass: each code arrives where it
// should, and every code of the dtype occurs.
TEST_P(BitPatterns, AllOccurInOnePass) {
  const Dtype dtype = GetParam();
  const int width = layout::bits(dtype);
  const layout::Geometry g{.layers = 2, .blocks = 9, .block_size = 16, .heads = 16, .head_dim = width == 16 ? 256 : 64};
  Scenario s;
  s.memories["P"] = testing::memory("producer", "L x K B N H C", g, testing::plain(dtype));
  s.memories["C"] = testing::memory("consumer", "L x B H K N C", g, testing::plain(dtype));
  s.requests["r"] = testing::request(128, {{"P", {8, 1, 0, 3, 2, 7, 4, 6}}, {"C", {0, 5, 2, 1, 6, 3, 8, 7}}});
  Action w = testing::write(s, "r", "P");
  w.content = "codes";
  testing::add(s, w);
  testing::add(s, testing::move(s, "r", "P", "C"));
  const testing::TruthBytes truth_bytes(s);
  const CopyProgram program = record(s, truth_bytes.space, intended_sequence(s));
  Bytes bytes(program.buffers, testing::TruthBytes::seed, 0);
  execute(program, bytes, testing::TruthBytes::seed, 0, [](std::size_t) {});
  std::set<std::uint32_t> kinds;  // kinds of fp32 that arrived
  std::vector<bool> seen(dtype == Dtype::fp32 ? 0 : std::size_t{1} << width);
  Patterns found;
  for (const Buffer& b : truth_bytes.space.buffers()) {
    const auto expected = truth_bytes.bytes(b.ordinal, 0);
    std::vector<std::uint8_t> there(expected.size());
    bytes.read(b.ordinal, -b.guard_below, static_cast<std::int64_t>(there.size()), there.data());
    ASSERT_TRUE(there == expected) << b.name;
    if (b.memory != "C") continue;
    const SymbolImage& image = truth_bytes.truth.checks.back().images.at(static_cast<std::size_t>(b.ordinal));
    for (std::int64_t at = 0; at < b.bytes; at += std::max(width / 8, 1)) {
      if (image.at(at) == hole) continue;
      for (int half = 0; half < (width == 4 ? 2 : 1); ++half) {
        std::uint32_t code = 0;
        for (int i = 0; i < std::max(width / 8, 1); ++i)
          code |= std::uint32_t{there[static_cast<std::size_t>(b.guard_below + at + i)]} << (8 * i);
        if (width == 4) code = code >> (4 * half) & 0xf;
        const float number = number_of(dtype, code);
        found.nan += std::isnan(number), found.infinite += std::isinf(number), found.subnormal += is_subnormal(dtype, code);
        found.negative_zero += number == 0 && std::signbit(number);
        if (dtype != Dtype::fp32) seen[code] = true;
        if (dtype == Dtype::fp32 && std::count(fp32_kinds.begin(), fp32_kinds.end(), code) > 0) kinds.insert(code);
      }
    }
  }
  found.all = static_cast<std::size_t>(std::count(seen.begin(), seen.end(), true));
  EXPECT_EQ(found.all, seen.size());
  const bool is_ieee = dtype == Dtype::fp32 || dtype == Dtype::fp16 || dtype == Dtype::bf16 || dtype == Dtype::e5m2;
  if (is_ieee) {
    EXPECT_GT(found.nan, 0);
    EXPECT_GT(found.infinite, 0);
    EXPECT_GT(found.negative_zero, 0);
    EXPECT_GT(found.subnormal, 0);
  }
  if (dtype == Dtype::fp32) {
    EXPECT_EQ(kinds.size(), fp32_kinds.size());
  }
  print_row(fmt::format("| {} | {} | {} | {} | {} | {} |", layout::name(dtype),
                        dtype == Dtype::fp32 ? fmt::format("{} of {} kinds", kinds.size(), fp32_kinds.size())
                                             : fmt::format("{} of {}", found.all, seen.size()),
                        found.nan, found.infinite, found.negative_zero, found.subnormal));
}
INSTANTIATE_TEST_SUITE_P(Identity, BitPatterns, ::testing::ValuesIn(layout::all_dtypes()),
                         [](const auto& p) { return std::string(layout::name(p.param)); });

}  // namespace
}  // namespace kvcts::scenario
