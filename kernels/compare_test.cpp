#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/generate.hpp"
#include "kernels/isa.hpp"
#include "kernels/tag_math.hpp"

namespace kvcts::kernels {
namespace {

// More cases than RapidCheck's hundred, unless the environment says otherwise.
[[maybe_unused]] const int more_cases = setenv("RC_PARAMS", "max_success=2000", 0);

std::vector<std::uint8_t> noise(std::size_t size) {
  std::vector<std::uint8_t> out(size);
  std::uint32_t state = 1;
  for (auto& byte : out) byte = static_cast<std::uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  return out;
}

TEST(Compare, FindsNoDifferenceInEqualBytes) {
  const auto a = noise(100000);
  EXPECT_EQ(compare(a, a).wrong_bytes, 0);
  EXPECT_TRUE(compare(a, a).first.empty());
  EXPECT_EQ(compare({}, {}).wrong_bytes, 0);
}

TEST(Compare, FindsOneWrongByteAtEveryOffsetAndAlignment) {
  auto a = noise(300), b = a;
  for (std::size_t from = 0; from < 70; ++from) {
    for (std::size_t at = from; at < a.size(); ++at) {
      b[at] ^= static_cast<std::uint8_t>(1u << (at % 8));
      const Difference found = compare(std::span(b).subspan(from), std::span(a).subspan(from));
      ASSERT_EQ(found.wrong_bytes, 1);
      ASSERT_EQ(found.first, std::vector<std::int64_t>{static_cast<std::int64_t>(at - from)});
      b[at] = a[at];
    }
  }
}

TEST(Compare, FindsOneWrongByteAcrossChunks) {
  auto a = noise(3 * 8192 + 5), b = a;
  for (std::size_t at = 0; at < a.size(); ++at) {
    b[at] = static_cast<std::uint8_t>(~b[at]);
    const Difference found = compare(b, a);
    ASSERT_EQ(found.wrong_bytes, 1);
    ASSERT_EQ(found.first, std::vector<std::int64_t>{static_cast<std::int64_t>(at)});
    b[at] = a[at];
  }
}

TEST(Compare, CountsEveryWrongByte) {
  const auto a = noise(200001);
  auto b = a;
  for (auto& byte : b) byte ^= 0x80;
  const Difference found = compare(b, a, 3);
  EXPECT_EQ(found.wrong_bytes, 200001);
  EXPECT_EQ(found.first, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(compare(b, a, 0).wrong_bytes, 200001);
  EXPECT_TRUE(compare(b, a, 0).first.empty());
}

RC_GTEST_PROP(Compare, FindsExactlyTheInjectedDifferences, ()) {
  const auto size = *rc::gen::inRange<std::size_t>(1, 40000);
  const auto places = *rc::gen::container<std::set<std::size_t>>(rc::gen::inRange<std::size_t>(0, size));
  const auto limit = *rc::gen::inRange<std::size_t>(0, 40);
  const auto shift_a = *rc::gen::inRange<std::size_t>(0, 64), shift_b = *rc::gen::inRange<std::size_t>(0, 64);
  const auto data = noise(size);
  std::vector<std::uint8_t> a(shift_a + size), b(shift_b + size);
  std::copy(data.begin(), data.end(), a.begin() + static_cast<std::ptrdiff_t>(shift_a));
  std::copy(data.begin(), data.end(), b.begin() + static_cast<std::ptrdiff_t>(shift_b));
  for (const std::size_t place : places) a[shift_a + place] ^= *rc::gen::inRange<std::uint8_t>(1, 255);
  const Difference found = compare(std::span(a).subspan(shift_a), std::span(b).subspan(shift_b), limit);
  RC_ASSERT(found.wrong_bytes == static_cast<std::int64_t>(places.size()));
  std::vector<std::int64_t> expected(places.begin(), places.end());
  expected.resize(std::min(limit, expected.size()));
  RC_ASSERT(found.first == expected);
}

TEST(Compare, RefusesUnequalSizes) {
  const auto a = noise(10);
  EXPECT_THROW(compare(a, std::span(a).first(9)), layout::Error);
}

TEST(Digest, MatchesXxh3) {
  // XXH3-64 of the empty input, seed 0: xxHash 0.8.1, cli/xsum_sanity_check.c (XSUM_XXH3_testdata, first entry).
  EXPECT_EQ(digest({}), 0x2d06800538d394c2u);
  const auto a = noise(5001);
  auto b = a;
  b[5000] ^= 1;
  EXPECT_NE(digest(a), digest(b));
  EXPECT_EQ(digest(a), digest(std::vector(a)));
}

// Every instruction set gives the same bytes and counts, whichever this machine would choose.

/// Keys of 37 rows: more than two vectors of them, and an odd rest.
struct Keys {
  Keys() : states(37), low(37), high(37), or_mask(37) {
    for (std::size_t r = 0; r < states.size(); ++r) {
      states[r] = 0x9123456789abcdefu * (r + 1);
      or_mask[r] = static_cast<std::uint32_t>(r % 4 * 0x04040404 | 0x03030303);
    }
    compute(usable_isas().front());
  }
  void compute(const Isa& isa) { isa.keys(states.data(), states.size(), low.data(), high.data()); }
  RowKeys rows() const { return {low.data(), high.data(), or_mask.data(), states.size()}; }

  std::vector<std::uint64_t> states;
  std::vector<std::uint32_t> low, high, or_mask;
};

TEST(Isa, TheBestIsTheLastUsableOne) {
  EXPECT_EQ(usable_isas().front().name, "baseline");
  EXPECT_EQ(&best_isa(), &usable_isas().back());
}

TEST(Isa, EveryOneMixesTheSameKeys) {
  for (const Isa& isa : usable_isas()) {
    Keys keys;
    keys.compute(isa);
    for (std::size_t r = 0; r < keys.states.size(); ++r)
      ASSERT_EQ(mix(keys.states[r]), std::uint64_t{keys.high[r]} << 32 | keys.low[r]) << isa.name;
  }
}

TEST(Isa, EveryOneWritesTheSameRows) {
  const Keys keys;
  const auto written = [&](const Isa& isa, int kind, std::size_t bytes, std::size_t gap) {
    std::vector<std::uint8_t> out(keys.rows().rows * (bytes + gap) + 64, 0x5a);
    isa.write_rows(LaneKind(kind))(
        keys.rows(), {static_cast<std::uint32_t>(bytes), bytes, std::ptrdiff_t(bytes + gap), 0xb3ffb3ffu}, out.data() + 1);
    return out;
  };
  for (int kind = 0; kind < lane_kinds; ++kind)
    for (std::size_t bytes = 0; bytes < 300; ++bytes)
      for (const std::size_t gap : {0, 3}) {
        const auto expected = written(usable_isas().front(), kind, bytes, gap);
        for (const Isa& isa : usable_isas())
          ASSERT_EQ(written(isa, kind, bytes, gap), expected) << isa.name << " " << kind << " " << bytes;
      }
}

TEST(Isa, EveryOneWritesTheSameColumns) {
  const Keys keys;
  const auto written = [&](const Isa& isa, int kind, std::size_t rows, int width, bool high_first) {
    std::vector<std::uint8_t> out(rows * 12 + 64, 0x5a);
    isa.write_columns(LaneKind(kind))(keys.rows().part(0, rows), {5, 3, 0xb3ffb3ffu, width, high_first}, out.data() + 1);
    return out;
  };
  for (int kind = 0; kind < lane_kinds; ++kind)
    for (const int width : {4, 8, 16, 32})
      for (std::size_t rows = 1; rows <= keys.rows().rows; ++rows)
        for (const bool high_first : {false, true}) {
          if (width == 4 && rows % 2 != 0) continue;
          const auto expected = written(usable_isas().front(), kind, rows, width, high_first);
          for (const Isa& isa : usable_isas())
            ASSERT_EQ(written(isa, kind, rows, width, high_first), expected)
                << isa.name << " " << kind << " " << width << " " << rows;
        }
}

TEST(Isa, EveryOneStreamsTheSameBytes) {
  const auto from = noise(400);
  for (std::size_t shift = 0; shift < 70; ++shift) {
    for (const std::size_t n : {0, 1, 15, 64, 100, 300}) {
      for (const Isa& isa : usable_isas()) {
        std::vector<std::uint8_t> to(500, 0x5a), expected = to;
        isa.stream(to.data() + shift, from.data() + 3, n);
        isa.drain();
        std::copy_n(from.begin() + 3, n, expected.begin() + std::ptrdiff_t(shift));
        ASSERT_EQ(to, expected) << isa.name << " " << shift << " " << n;
      }
    }
  }
}

// Pieces in two loops, and each byte changed once.
TEST(Isa, EveryOneFindsAnyChangedByteOfAPieceAndNoneBesideIt) {
  for (const std::size_t bytes : {1, 4, 7, 64, 100}) {
    const Pieces pieces{0, bytes, 3, static_cast<std::int64_t>(bytes) + 5, 2, 3 * static_cast<std::int64_t>(bytes) + 20};
    auto memory = noise(800);
    std::vector<std::uint8_t> tile;
    std::vector<std::size_t> places;
    each_piece(pieces, [&](std::int64_t at) {
      for (std::size_t b = 0; b < bytes; ++b) places.push_back(static_cast<std::size_t>(at) + b);
    });
    for (const std::size_t place : places) tile.push_back(memory[place]);
    const auto expect_equal = [&](bool equal) {
      for (const Isa& isa : usable_isas())
        ASSERT_EQ(isa.equal(memory.data(), tile.data(), pieces), equal) << isa.name << " " << bytes;
    };
    expect_equal(true);
    for (const std::size_t place : places) {
      memory[place] ^= 0x40;
      expect_equal(false);
      memory[place] ^= 0x40;
    }
    memory[places.back() + 1] ^= 1;
    expect_equal(true);
  }
}

TEST(Isa, EveryOneCountsTheSameDifferences) {
  const auto all = noise(70000);
  auto inverted = all;
  for (auto& byte : inverted) byte ^= 0xff;
  for (std::size_t n = 0; n < all.size(); n += 1000) {
    for (const Isa& isa : usable_isas()) ASSERT_EQ(isa.count(all.data(), inverted.data(), n), n) << isa.name;
  }
  const auto a = noise(70000);
  auto b = a;
  for (std::size_t k = 0; k < b.size(); k += 1 + k % 7) b[k] ^= 1;
  for (std::size_t n = 0; n < a.size(); n += n < 700 ? 1 : 4999) {
    std::size_t expected = 0;
    for (std::size_t k = 0; k < n; ++k) expected += a[k] != b[k];
    for (const Isa& isa : usable_isas()) ASSERT_EQ(isa.count(a.data(), b.data(), n), expected) << isa.name << " " << n;
  }
}

}  // namespace
}  // namespace kvcts::kernels
