#include "kernels/tag.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "kernels/poison.hpp"
#include "kernels/testing/reference.hpp"
#include "layout/error.hpp"

namespace kvcts::kernels {
namespace {

using layout::Component;
using layout::Dtype;

// Known answers, computed from the contract by a third implementation (plain Python integers). They never change: golden
// files contain these values.
constexpr std::int64_t known_channels[]{0, 1, 2, 3, 7, 127, 575};
struct Known {
  TagKey key;
  RowId row;
  std::optional<std::uint64_t> row_key;
  std::map<Dtype, std::vector<std::uint32_t>> codes;
};

std::vector<Known> known_answers() {
  return {
      {{1, 0, 0},
       {},
       0x2aa9cfa61473238e,
       {
           {Dtype::fp32, {0xa427ae33, 0x839ab6cf, 0x2647e157, 0x174089a7, 0xbf803783, 0x8ec52d6b, 0xaeba1cdb}},
           {Dtype::fp16, {0xae33, 0xa427, 0xb6cf, 0x839b, 0x1743, 0x3e83, 0x11d3}},
           {Dtype::bf16, {0xae33, 0xa427, 0xb6cf, 0x839b, 0x1743, 0x3e83, 0x11d3}},
           {Dtype::e4m3fn, {0x33, 0xaf, 0x27, 0xa7, 0x83, 0x1b, 0x17}},
           {Dtype::e5m2, {0x33, 0xaf, 0x27, 0xa7, 0x83, 0x1b, 0x17}},
           {Dtype::e4m3fnuz, {0x33, 0xaf, 0x27, 0xa7, 0x83, 0x1b, 0x17}},
           {Dtype::e5m2fnuz, {0x33, 0xaf, 0x27, 0xa7, 0x83, 0x1b, 0x17}},
           {Dtype::e8m0, {0x33, 0xaf, 0x27, 0xa7, 0x83, 0x1b, 0x17}},
           {Dtype::int8, {0x33, 0xaf, 0x27, 0xa7, 0xc3, 0x5b, 0x17}},
           {Dtype::uint8, {0x33, 0xaf, 0x27, 0xa7, 0xc3, 0x5b, 0x17}},
           {Dtype::int4, {0x3, 0x3, 0xf, 0xb, 0xb, 0x3, 0xf}},
           {Dtype::e2m1, {0x3, 0x3, 0xf, 0xb, 0xb, 0x3, 0xf}},
       }},
      {{0x123456789abcdef, 3, 5},
       {Component::data, 1, 61, 127, 1048575, 7},
       0x2ffaffb9eb49d479,
       {
           {Dtype::fp32, {0x3c2ca4d7, 0x8431d71b, 0x411c837, 0xac49110b, 0x2ca29d63, 0x3653537b, 0x8853b407}},
           {Dtype::fp16, {0xa4d7, 0x3c2f, 0x971b, 0x8433, 0xac4b, 0xb3c3, 0x1b63}},
           {Dtype::bf16, {0xa4d7, 0x3c2f, 0x971b, 0x8433, 0xac4b, 0xb3c3, 0x1b63}},
           {Dtype::e4m3fn, {0x97, 0xa7, 0x2f, 0x3f, 0x87, 0xb7, 0x37}},
           {Dtype::e5m2, {0x97, 0xa7, 0x2f, 0x3f, 0x87, 0xb7, 0x37}},
           {Dtype::e4m3fnuz, {0x97, 0xa7, 0x2f, 0x3f, 0x87, 0xb7, 0x37}},
           {Dtype::e5m2fnuz, {0x97, 0xa7, 0x2f, 0x3f, 0x87, 0xb7, 0x37}},
           {Dtype::e8m0, {0x97, 0xa7, 0x2f, 0x3f, 0x87, 0xb7, 0x37}},
           {Dtype::int8, {0xd7, 0xa7, 0x2f, 0x7f, 0x87, 0xb7, 0x37}},
           {Dtype::uint8, {0xd7, 0xa7, 0x2f, 0x7f, 0x87, 0xb7, 0x37}},
           {Dtype::int4, {0x5, 0xd, 0x5, 0xb, 0x7, 0x1, 0x9}},
           {Dtype::e2m1, {0x5, 0xd, 0x5, 0xb, 0x7, 0x1, 0x9}},
       }},
      {{42, 1, 0},
       {Component::scale, 1, 3, 5, 70000, 2},
       0x1ed848500dc7c6e9,
       {
           {Dtype::fp32, {0x1e2340eb, 0x3dfa8ef, 0x116d51c3, 0x86e2fa47, 0xaecac467, 0xc856f57, 0xb0ef1c57}},
           {Dtype::fp16, {0xeb, 0x1e2f, 0xa8e3, 0x3d7, 0x86e7, 0x2097, 0x9c27}},
           {Dtype::bf16, {0xeb, 0x1e2f, 0xa8e3, 0x3d7, 0x86e7, 0x2097, 0x9c27}},
           {Dtype::e4m3fn, {0xab, 0xf, 0x23, 0x17, 0x7, 0xb7, 0x87}},
           {Dtype::e5m2, {0xab, 0xf, 0x23, 0x17, 0x7, 0xb7, 0x87}},
           {Dtype::e4m3fnuz, {0xab, 0xf, 0x23, 0x17, 0x7, 0xb7, 0x87}},
           {Dtype::e5m2fnuz, {0xab, 0xf, 0x23, 0x17, 0x7, 0xb7, 0x87}},
           {Dtype::e8m0, {0xab, 0xf, 0x23, 0x17, 0x7, 0xb7, 0x87}},
           {Dtype::int8, {0xeb, 0x4f, 0x23, 0x17, 0x47, 0xf7, 0xc7}},
           {Dtype::uint8, {0xeb, 0x4f, 0x23, 0x17, 0x47, 0xf7, 0xc7}},
           {Dtype::int4, {0xb, 0xf, 0x1, 0x5, 0x5, 0x7, 0x7}},
           {Dtype::e2m1, {0xb, 0xf, 0x1, 0x5, 0x5, 0x7, 0x7}},
       }},
      {{42, 1, 0},
       {Component::global_scale, 0, 3, 0, 0, 2},
       0x1cab0fd26e08831,
       {
           {Dtype::fp32, {0xadd32bbf, 0x93c82e3, 0xefaa087, 0x8c28cab, 0xb88f222b, 0x2b8d415b, 0x22d633eb}},
           {Dtype::e4m3fn, {0xbf, 0x23, 0x97, 0xab, 0xb, 0x3b, 0xb}},
       }},
      // The literals that golden/test_tag.py also requires of the NumPy generator.
      {{1, 0, 0},
       {Component::data, 1, 2, 3, 5, 1},
       {},
       {
           {Dtype::fp32, {0x83316d57, 0xa3dc0efb, 0x9edbd95b, 0x28a4bed3}},
           {Dtype::bf16, {0x2d57, 0x8333, 0xefb, 0xa3df}},
           {Dtype::e4m3fn, {0x17, 0x2f, 0x33, 0x83}},
           {Dtype::int8, {0x57, 0x6f, 0x33, 0xc3}},
           {Dtype::int4, {0x7, 0x5, 0xd, 0x7}},
       }},
      {{1, 0, 0},
       {Component::scale, 1, 2, 3, 5, 1},
       {},
       {{Dtype::fp32, {0xaa8548e3, 0x91ca6ec7, 0xaa5fd33b, 0x12ef096f}}, {Dtype::e8m0, {0xa3, 0x7, 0x8b, 0xaf}}}},
  };
}

TEST(Tag, MatchesKnownAnswers) {
  for (const Known& known : known_answers()) {
    const std::uint64_t key = row_key(known.key, known.row);
    EXPECT_EQ(key, known.row_key.value_or(key));
    EXPECT_EQ(reference::row(known.key, known.row), key);
    for (const auto& [dtype, codes] : known.codes) {
      for (std::size_t k = 0; k < codes.size(); ++k) {
        EXPECT_EQ(tag_code(key, known.row, dtype, known_channels[k]), codes[k])
            << "dtype " << int(dtype) << " channel " << known_channels[k];
        EXPECT_EQ(reference::code(key, known.row, dtype, known_channels[k]), codes[k]);
      }
    }
  }
}

/// Rows of every component at places drawn over the whole range of each field.
struct Drawn {
  TagKey key;
  RowId row;
};
std::vector<Drawn> drawn_rows(int count) {
  std::mt19937_64 random(20);
  std::vector<Drawn> out;
  for (int k = 0; k < count; ++k) {
    const auto below = [&random](int log2) { return std::int64_t(random() >> (64 - log2)); };
    out.push_back({{random(), std::uint32_t(below(3)), std::uint32_t(below(2))},
                   {Component(k % 3), below(1), below(k % 2 ? 24 : 6), below(k % 2 ? 20 : 3), below(k % 5 ? 12 : 44),
                    std::uint32_t(random())}});
  }
  return out;
}

/// f(row, key, dtype, channel, code) for many rows, all dtypes, 600 channels.
template <typename F>
void for_codes(int rows, F f) {
  for (const Drawn& drawn : drawn_rows(rows)) {
    const std::uint64_t key = row_key(drawn.key, drawn.row);
    for (const Dtype dtype : reference::dtypes()) {
      for (std::int64_t c = 0; c < 600; ++c) f(drawn.row, key, dtype, c, tag_code(key, drawn.row, dtype, c));
    }
  }
}

TEST(Tag, CodesMatchTheReference) {
  for (const Drawn& drawn : drawn_rows(60)) {
    ASSERT_EQ(row_key(drawn.key, drawn.row), reference::row(drawn.key, drawn.row));
  }
  for_codes(60, [](const RowId& row, std::uint64_t key, Dtype dtype, std::int64_t channel, std::uint32_t code) {
    ASSERT_EQ(code, reference::code(key, row, dtype, channel)) << int(dtype) << " " << channel;
  });
}

TEST(Tag, FloatsAreOrdinaryNumbers) {
  for_codes(300, [](const RowId&, std::uint64_t, Dtype dtype, std::int64_t channel, std::uint32_t code) {
    const double value = reference::meaning(dtype, code);
    ASSERT_TRUE(std::isfinite(value)) << int(dtype) << " code " << code << " channel " << channel;
    ASSERT_NE(value, 0) << int(dtype) << " code " << code;
    if (dtype == Dtype::int4) return;  // four bits, two's complement: 1 is one of its eight odd numbers
    ASSERT_NE(value, 1) << int(dtype) << " code " << code;
    if (dtype == Dtype::e8m0 || dtype == Dtype::e2m1) return;  // nothing but powers of two; no room
    ASSERT_FALSE(reference::power_of_two(value) && value != -1) << int(dtype) << " code " << code << " value " << value;
    if (!reference::is_integer(dtype)) {
      ASSERT_LT(std::fabs(value), 2) << int(dtype) << " code " << code;
    }
  });
}

TEST(Tag, EveryCodeOfANarrowDtypeIsSafeForAnyHash) {
  // The masks alone, over all 2^16 hashes: checks exhaustively what FloatsAreOrdinaryNumbers samples. A code that tag/1 can
  // give keeps the fixed bits: found by collecting all codes of long rows.
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::e4m3fn, Dtype::e5m2, Dtype::e4m3fnuz, Dtype::e5m2fnuz,
                            Dtype::e8m0, Dtype::int8, Dtype::uint8, Dtype::int4, Dtype::e2m1}) {
    for (const Component component : {Component::data, Component::scale}) {
      std::vector<bool> seen(1u << 16);
      std::size_t distinct = 0;
      const RowId row{component, 0, 0, 0, 0, 0};
      const std::uint64_t key = row_key({}, row);
      for (std::int64_t c = 0; c < 400000; ++c) {
        const std::uint32_t code = tag_code(key, row, dtype, c);
        if (seen[code]) continue;
        seen[code] = true;
        ++distinct;
        const double value = reference::meaning(dtype, code);
        EXPECT_TRUE(std::isfinite(value) && value != 0) << int(dtype) << " " << code;
        EXPECT_EQ(code & 1u, 1u);
        if (reference::width(dtype) >= 8 && dtype != Dtype::e8m0) {
          EXPECT_FALSE(reference::power_of_two(value) && value != -1) << int(dtype) << " " << code;
        }
      }
      // All free codes occur: the digit of a scale runs over all four values along the row.
      EXPECT_EQ(distinct, std::size_t{1} << entropy_bits(dtype)) << int(dtype);
    }
  }
}

TEST(Tag, ScalesDifferFromEveryNeighbour) {
  struct Step {
    const char* axis;
    std::int64_t RowId::* field;
  };
  for (const Drawn& drawn : drawn_rows(200)) {
    if (drawn.row.component == Component::data) continue;
    for (const Dtype dtype : reference::dtypes()) {
      for (std::int64_t c = 0; c < 40; ++c) {
        const std::uint32_t here = tag_code(row_key(drawn.key, drawn.row), drawn.row, dtype, c);
        ASSERT_NE(here, tag_code(row_key(drawn.key, drawn.row), drawn.row, dtype, c + 1)) << "channel";
        for (const Step step : {Step{"kv", &RowId::kv}, Step{"layer", &RowId::layer}, Step{"head", &RowId::head},
                                Step{"token", &RowId::token}}) {
          RowId next = drawn.row;
          next.*step.field = step.field == &RowId::kv ? 1 - next.kv : next.*step.field ^ 1;
          ASSERT_NE(here, tag_code(row_key(drawn.key, next), next, dtype, c)) << step.axis << " dtype " << int(dtype);
        }
      }
    }
  }
}

TEST(Tag, NoTagIsPoison) {
  // A code's bit 0 is set; the same bit of any code-aligned place in poison is clear.
  std::vector<std::uint8_t> poison(1 << 16);
  fill_poison(poison_key(3, 1, 2, 0), 5, poison);
  for (const std::uint8_t byte : poison) ASSERT_EQ(byte & 0x11, 0);
  for_codes(50, [](const RowId&, std::uint64_t, Dtype, std::int64_t, std::uint32_t code) { ASSERT_EQ(code & 1u, 1u); });
}

TEST(Tag, EveryFieldMatters) {
  const TagKey key{9, 2, 0};
  const RowId row{Component::data, 0, 4, 3, 100, 6};
  const auto with = [](auto value, auto change) {
    change(value);
    return value;
  };
  std::vector<std::uint64_t> keys{row_key(key, row)};
  keys.push_back(row_key(with(key, [](TagKey& k) { ++k.seed; }), row));
  keys.push_back(row_key(with(key, [](TagKey& k) { ++k.pass; }), row));
  keys.push_back(row_key(with(key, [](TagKey& k) { ++k.origin; }), row));
  keys.push_back(row_key(key, with(row, [](RowId& r) { r.component = Component::scale; })));
  keys.push_back(row_key(key, with(row, [](RowId& r) { ++r.kv; })));
  keys.push_back(row_key(key, with(row, [](RowId& r) { ++r.layer; })));
  keys.push_back(row_key(key, with(row, [](RowId& r) { ++r.head; })));
  keys.push_back(row_key(key, with(row, [](RowId& r) { ++r.token; })));
  keys.push_back(row_key(key, with(row, [](RowId& r) { ++r.generation; })));
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

TEST(Tag, RefusesFieldsOutOfRange) {
  EXPECT_THROW(row_key({}, {Component::data, 16, 0, 0, 0, 0}), layout::Error);
  EXPECT_THROW(row_key({}, {Component::data, 0, 1 << 24, 0, 0, 0}), layout::Error);
  EXPECT_THROW(row_key({}, {Component::data, 0, 0, 1 << 20, 0, 0}), layout::Error);
  EXPECT_THROW(row_key({}, {Component::data, 0, 0, 0, std::int64_t{1} << 44, 0}), layout::Error);
  EXPECT_THROW(row_key({}, {Component::data, 0, 0, 0, -1, 0}), layout::Error);
  EXPECT_NO_THROW(row_key({}, {Component::data, 15, (1 << 24) - 1, (1 << 20) - 1, (std::int64_t{1} << 44) - 1, 0}));
}

/// Packs codes by hand, bit by bit.
std::vector<std::uint8_t> packed(std::uint64_t key, const RowId& row, Dtype dtype, std::int64_t first, std::int64_t count) {
  const int w = reference::width(dtype);
  std::vector<std::uint8_t> out(std::size_t((count * w + 7) / 8), 0);
  for (std::int64_t c = 0; c < count; ++c) {
    for (int b = 0; b < w; ++b) {
      reference::put_bit(out, c * w + b, (reference::code(key, row, dtype, first + c) >> b) & 1u);
    }
  }
  return out;
}

TEST(TagRow, EveryWindowMatchesTheCodesOfTheRow) {
  for (const Drawn& drawn : drawn_rows(6)) {
    const std::uint64_t key = row_key(drawn.key, drawn.row);
    for (const Dtype dtype : reference::dtypes()) {
      for (std::int64_t first = 0; first < 12; ++first) {
        if (first * reference::width(dtype) % 8 != 0) continue;
        for (std::int64_t count = 0; count < 100; count += count < 40 ? 1 : 7) {
          const auto expected = packed(key, drawn.row, dtype, first, count);
          // Guards beside the row, which starts at an odd address.
          std::vector<std::uint8_t> out(expected.size() + 9, 0x5a);
          tag_row(key, drawn.row, dtype, first, count, std::span(out).subspan(1, expected.size()));
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.begin() + 1))
              << "dtype " << int(dtype) << " channels [" << first << ", +" << count << ")";
          ASSERT_EQ(out.front(), 0x5a);
          ASSERT_TRUE(std::all_of(out.begin() + 1 + std::ptrdiff_t(expected.size()), out.end(),
                                  [](std::uint8_t b) { return b == 0x5a; }));
        }
      }
    }
  }
}

TEST(TagRow, RefusesInvalidWindows) {
  std::vector<std::uint8_t> out(8);
  EXPECT_THROW(tag_row(1, {}, Dtype::int4, 1, 16, out), layout::Error);
  EXPECT_THROW(tag_row(1, {}, Dtype::int8, 0, 9, out), layout::Error);
  EXPECT_THROW(tag_row(1, {}, Dtype::int8, -1, 8, out), layout::Error);
  EXPECT_NO_THROW(tag_row(1, {}, Dtype::int4, 2, 15, out));
}

TEST(Collisions, EntropyMatchesEachDtype) {
  EXPECT_EQ(entropy_bits(Dtype::fp32), 29);
  EXPECT_EQ(entropy_bits(Dtype::bf16), 13);
  EXPECT_EQ(entropy_bits(Dtype::e4m3fn), 5);
  EXPECT_EQ(entropy_bits(Dtype::int8), 6);
  EXPECT_EQ(entropy_bits(Dtype::e2m1), 3);
  EXPECT_EQ(entropy_bits(Dtype::e4m3fn, Component::scale), 3);
  EXPECT_EQ(entropy_bits(Dtype::fp32, Component::global_scale), 27);
  EXPECT_EQ(deciding_passes(Dtype::fp32, 1), 3);
  EXPECT_EQ(deciding_passes(Dtype::bf16, 4), 2);
  EXPECT_EQ(deciding_passes(Dtype::bf16, 5), 1);
  EXPECT_EQ(deciding_passes(Dtype::e2m1, 2), 11);
  EXPECT_EQ(deciding_passes(Dtype::e2m1, std::int64_t{1} << 62), 1);
  EXPECT_EQ(deciding_passes(Dtype::e4m3fn, 1, Component::scale), 22);
  EXPECT_THROW(deciding_passes(Dtype::fp32, 0), layout::Error);
}

struct Unit {
  Dtype dtype;
  std::int64_t elements;
  int passes;
};

/// The neighbour of `row` on an axis: K/V, layer, head, token, generation. Channels are no part of a row: itself.
RowId neighbour(RowId row, int axis) {
  if (axis == 0) row.kv = 1;
  if (axis == 1) ++row.layer;
  if (axis == 2) ++row.head;
  if (axis == 3) ++row.token;
  if (axis == 4) ++row.generation;
  return row;
}

bool same_tags(const Unit& unit, std::int64_t trial, int axis) {
  const RowId here{Component::data, 0, trial % 61, (trial / 61) % 128, trial, 3}, there = neighbour(here, axis);
  const std::int64_t from = (trial * 8) % 512, to = axis == 5 ? from + unit.elements : from;
  for (std::uint32_t pass = 0; pass < std::uint32_t(unit.passes); ++pass) {
    const std::uint64_t a = row_key({5, pass, 0}, here), b = row_key({5, pass, 0}, there);
    for (std::int64_t c = 0; c < unit.elements; ++c)
      if (tag_code(a, here, unit.dtype, from + c) != tag_code(b, there, unit.dtype, to + c)) return false;
  }
  return true;
}

// deciding_passes() rests on two claims: two different units of n elements agree in one pass with p = 2^-(n * entropy), and
// passes are independent. Both are counted here where p is large enough to count, for neighbours on each axis. The bound is
// five sigma.
class CollisionRate : public ::testing::TestWithParam<int> {};

TEST_P(CollisionRate, MatchesTheEntropy) {
  for (const Unit unit : {Unit{Dtype::e2m1, 1, 1}, Unit{Dtype::e2m1, 2, 1}, Unit{Dtype::e2m1, 3, 1}, Unit{Dtype::e2m1, 1, 3},
                          Unit{Dtype::e4m3fn, 1, 1}, Unit{Dtype::e4m3fn, 2, 1}, Unit{Dtype::e5m2, 1, 2},
                          Unit{Dtype::int8, 1, 1}, Unit{Dtype::int8, 1, 2}, Unit{Dtype::bf16, 1, 1}}) {
    constexpr std::int64_t trials = 1 << 18;
    std::int64_t agree = 0;
    for (std::int64_t t = 0; t < trials; ++t) agree += same_tags(unit, t, GetParam());
    const double p = std::ldexp(1.0, -int(unit.elements) * entropy_bits(unit.dtype) * unit.passes);
    const double expected = p * double(trials), sigma = std::sqrt(expected * (1 - p));
    EXPECT_NEAR(double(agree), expected, 5 * sigma + 1)
        << "dtype " << int(unit.dtype) << " x" << unit.elements << " axis " << GetParam();
  }
}
INSTANTIATE_TEST_SUITE_P(Axes, CollisionRate, ::testing::Range(0, 6));

}  // namespace
}  // namespace kvcts::kernels
