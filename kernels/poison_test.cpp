#include "kernels/poison.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/testing/reference.hpp"
#include "layout/error.hpp"

namespace kvcts::kernels {
namespace {

constexpr std::int64_t four_gi_words = std::int64_t{1} << 34;  // bytes after which the key changes

TEST(Poison, MatchesKnownAnswers) {
  const std::uint64_t key = poison_key(7, 1, 3, 2);
  EXPECT_EQ(key, 0xd33825afe0a693du);
  const auto word_at = [key](std::int64_t i) {
    std::uint32_t w = 0;
    for (int b = 3; b >= 0; --b) w = w << 8 | poison_byte(key, 4 * i + b);
    return w;
  };
  EXPECT_EQ(word_at(0), 0xa2626eeau);
  EXPECT_EQ(word_at(1), 0x62262aaau);
  EXPECT_EQ(word_at(2), 0xeeee2aeeu);
  EXPECT_EQ(word_at(1 << 20), 0x62a6266eu);
  EXPECT_EQ(word_at((std::int64_t{1} << 32) - 1), 0x22a622e6u);
  EXPECT_EQ(word_at(std::int64_t{1} << 32), 0x6aeeea22u);
  EXPECT_EQ(word_at((std::int64_t{1} << 32) + 1), 0xe266aa62u);
}

TEST(Poison, MatchesGoldenFiles) {  // the literals that golden/test_tag.py also requires of the NumPy generator
  std::vector<std::uint8_t> out(8);
  fill_poison(poison_key(1, 0, 0, 1), 0, out);
  EXPECT_EQ(out, (std::vector<std::uint8_t>{0xaa, 0x62, 0x66, 0xe2, 0xa2, 0xa2, 0x6a, 0x62}));
}

TEST(Poison, FillEqualsByteAtEveryOffset) {
  const std::uint64_t key = poison_key(1, 0, 0, 0);
  for (const std::int64_t base : {std::int64_t{0}, std::int64_t{4096}, four_gi_words - 32, 3 * four_gi_words - 150}) {
    for (std::int64_t shift = 0; shift < 9; ++shift) {
      for (const std::size_t size : {0u, 1u, 2u, 3u, 4u, 5u, 31u, 64u, 200u, 301u}) {
        std::vector<std::uint8_t> out(size + 2, 0x5a);
        fill_poison(key, base + shift, std::span(out).subspan(1, size));
        for (std::size_t k = 0; k < size; ++k) {
          const std::int64_t at = base + shift + std::int64_t(k);
          ASSERT_EQ(out[k + 1], poison_byte(key, at));
          ASSERT_EQ(out[k + 1], reference::poison(key, std::uint64_t(at)));
        }
        ASSERT_EQ(out.front(), 0x5a);
        ASSERT_EQ(out.back(), 0x5a);
      }
    }
  }
}

TEST(Poison, BytesAndNibblesAreNeverSpecial) {
  std::vector<std::uint8_t> out(1 << 20);
  std::set<std::uint8_t> seen;
  for (std::uint32_t file = 0; file < 3; ++file) {
    fill_poison(poison_key(file, file, file, file), 0, out);
    seen.insert(out.begin(), out.end());
  }
  EXPECT_EQ(seen.size(), 16u);  // four free bits per byte, all used
  for (const std::uint8_t byte : seen) {
    EXPECT_EQ(byte & 0x11, 0) << int(byte);
    EXPECT_NE(byte & 0x0f, 0) << int(byte);
    EXPECT_NE(byte & 0xf0, 0) << int(byte);
    EXPECT_NE(byte, 0x80);
    EXPECT_NE(byte, 0xff);
  }
}

TEST(Poison, IsFiniteInEveryDtypeAtEveryShift) {
  std::vector<std::uint8_t> out(1 << 18);
  fill_poison(poison_key(11, 2, 0, 1), 0, out);
  for (std::size_t k = 0; k + 4 <= out.size(); ++k) {
    std::uint32_t bits = 0;
    for (std::size_t b = 4; b-- > 0;) bits = bits << 8 | out[k + b];
    for (const layout::Dtype dtype : reference::dtypes()) {
      const int w = reference::width(dtype);
      const double value = reference::meaning(dtype, w == 32 ? bits : bits & ((1u << w) - 1));
      ASSERT_TRUE(std::isfinite(value) && value != 0) << int(dtype) << " " << bits;
    }
  }
}

TEST(Poison, DiffersBetweenFilesAndOffsets) {
  std::set<std::uint64_t> keys;
  for (std::uint32_t side = 0; side < 3; ++side) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      for (std::uint32_t allocation = 0; allocation < 4; ++allocation) keys.insert(poison_key(1, side, rank, allocation));
    }
  }
  EXPECT_EQ(keys.size(), 48u);
  // 32 bytes of one place (128 free bits) occur nowhere else in a megabyte.
  std::vector<std::uint8_t> out(1 << 20);
  fill_poison(*keys.begin(), 0, out);
  std::set<std::vector<std::uint8_t>> pieces;
  for (std::size_t k = 0; k < out.size(); k += 32)
    pieces.emplace(out.begin() + std::ptrdiff_t(k), out.begin() + std::ptrdiff_t(k + 32));
  EXPECT_EQ(pieces.size(), out.size() / 32);
}

TEST(Poison, CheckFindsEveryWrongByteAtEveryOffset) {
  const std::uint64_t key = poison_key(3, 0, 0, 0);
  for (const std::int64_t base : {std::int64_t{0}, std::int64_t{4093}, four_gi_words - 5000}) {
    std::vector<std::uint8_t> bytes(9001);
    fill_poison(key, base, bytes);
    ASSERT_EQ(check_poison(key, base, bytes), Difference{});
    ASSERT_GT(check_poison(key, base + 1, bytes).wrong_bytes, 8000);
    for (std::size_t at = 0; at < bytes.size(); at += at < 80 ? 1 : 97) {
      bytes[at] ^= 2;
      ASSERT_EQ(check_poison(key, base, bytes), (Difference{1, {std::int64_t(at)}}));
      bytes[at] ^= 2;
    }
  }
}

TEST(Poison, IsIndependentOfThreadsAndRegionSize) {
  std::vector<std::uint8_t> one((std::size_t{32} << 20) + 13), many = one;
  fill_poison(7, 3, one);
  fill_poison(7, 3, many, 3);
  EXPECT_EQ(one, many);
  for (const std::size_t at : {std::size_t{0}, std::size_t{12345678}, one.size() - 1}) {
    EXPECT_EQ(one[at], reference::poison(7, at + 3));
    many[at] ^= 0x11;
  }
  const Difference wrong{3, {0, 12345678, std::int64_t(one.size()) - 1}};
  EXPECT_EQ(check_poison(7, 3, many, 16, 3), wrong);
  EXPECT_EQ(check_poison(7, 3, many), wrong);
}

TEST(Poison, RefusesWrongArguments) {
  std::vector<std::uint8_t> out(8);
  EXPECT_THROW(fill_poison(1, -1, out), layout::Error);
  EXPECT_THROW(poison_key(1, 0, 65536, 0), layout::Error);
  EXPECT_THROW(poison_key(1, 0, 0, 65536), layout::Error);
}

}  // namespace
}  // namespace kvcts::kernels
