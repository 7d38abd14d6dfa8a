// Rules read off synthetic relations: what they say, and that they never say more than the bytes do.
#include "diagnose/findings/findings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace kvcts::findings {
namespace {

/// A memory of 2 layers, K and V, 3 blocks of 4 tokens, 4 heads, 8 channels of 2 bytes; `become` is what lies at a place.
std::vector<Extent> memory(const std::function<void(const Coordinates& should, Extent& extent)>& become) {
  std::vector<Extent> out;
  std::int64_t offset = 0;
  for (std::int64_t layer = 0; layer < 2; ++layer)
    for (std::int64_t kv = 0; kv < 2; ++kv)
      for (std::int64_t token = 0; token < 12; ++token)
        for (std::int64_t head = 0; head < 4; ++head) {
          Extent extent;
          extent.offset = offset, extent.bytes = 16, extent.channels = 8;
          offset += 16;
          extent.should.kind = ByteSource::Kind::element;
          extent.should.at.at = {0,         1,    layer, kv, token, std::array<std::int64_t, 3>{5, 1, 7}[token / 4],
                                 token % 4, head, 0};
          extent.is = extent.should;
          become(extent.should.at, extent);
          extent.wrong = extent.is != extent.should;
          out.push_back(extent);
        }
  return out;
}

Labels labels() {
  Labels out;
  out.memories = {"C"}, out.regions = {"C/kv", "P/kv"};
  out.requests = {{1, "A"}, {2, "B"}};
  out.planes[0] = {{{{0, none, 0, 0, none, 0, 0, 0, 0}}, {{1, none, 2, 2, none, 8, 4, 4, 8}}, 16}};
  return out;
}

std::vector<std::string> sentences(const std::vector<Extent>& extents) {
  std::vector<std::string> out;
  for (const Finding& one : what_happened(extents, labels())) out.push_back(one.text);
  return out;
}
using Rules = std::vector<std::string>;

TEST(Findings, RightBytesGiveNoFinding) {
  EXPECT_EQ(sentences(memory([](const Coordinates&, Extent&) {})), Rules{});
}

TEST(Findings, NameScopeAndChange) {
  EXPECT_EQ(sentences(memory(
                [](const Coordinates& at, Extent& extent) { extent.is.at[ContentAxis::kv] = 1 - at[ContentAxis::kv]; })),
            Rules{"C: holds K and V exchanged (3,072 bytes)"});
  EXPECT_EQ(sentences(memory([](const Coordinates& at, Extent& extent) {
              if (at[ContentAxis::layer] == 1) extent.is.at[ContentAxis::kv] = 1 - at[ContentAxis::kv];
            })),
            Rules{"C, layer 1: holds K and V exchanged (1,536 bytes)"});
  EXPECT_EQ(sentences(memory([](const Coordinates&, Extent& extent) { extent.is.at[ContentAxis::head] = 0; })),
            Rules{"C, heads 1..3: holds head 0 (2,304 bytes)"});
  EXPECT_EQ(sentences(memory([](const Coordinates& at, Extent& extent) {
              if (at[ContentAxis::token] / 4 == 1) extent.is.at[ContentAxis::token] -= 4;
            })),
            Rules{"C, tokens 4..7 (block 1): holds tokens 0..3 (1,024 bytes)"});
  EXPECT_EQ(sentences(memory([](const Coordinates& at, Extent& extent) {
              if (at[ContentAxis::token] >= 6) extent.is = {ByteSource::Kind::nothing, 0, 0, 0, {}, ""};
            })),
            Rules{"C, tokens 6..11 (blocks 1, 7): not written (1,536 bytes)"});
  EXPECT_EQ(sentences(memory([](const Coordinates& at, Extent& extent) {
              if (at[ContentAxis::head] == 2) extent.is = {ByteSource::Kind::constant, 0, 0, 0, {}, ""};
            })),
            Rules{"C, head 2: holds 0x00 (768 bytes)"});
  EXPECT_EQ(sentences(memory([](const Coordinates&, Extent& extent) { extent.is.at[ContentAxis::request] = 2; })),
            Rules{"C: holds request B (3,072 bytes)"});
}

TEST(Findings, TwoChangesGiveTwoFindings) {
  const Rules rules = sentences(memory([](const Coordinates& at, Extent& extent) {
    if (at[ContentAxis::layer] == 0) extent.is.at[ContentAxis::head] ^= 1;
    if (at[ContentAxis::layer] == 1 && at[ContentAxis::token] < 4) extent.is = {ByteSource::Kind::nothing, 0, 0, 0, {}, ""};
  }));
  EXPECT_EQ(rules, (Rules{"C, layer 0: holds heads exchanged: 1 for 0, 0 for 1, 3 for 2, 2 for 3 (1,536 bytes)",
                          "C, layer 1, tokens 0..3 (block 5): not written (512 bytes)"}));
}

TEST(Findings, TwoAxesInTheOtherOrderAreOneFinding) {
  // Within a block of 4 slots x 4 heads, walked as heads x slots.
  const Rules rules = sentences(memory([](const Coordinates& at, Extent& extent) {
    const std::int64_t flat = at[ContentAxis::slot] * 4 + at[ContentAxis::head];
    extent.is.at[ContentAxis::token] += flat % 4 - at[ContentAxis::slot];
    extent.is.at[ContentAxis::head] = flat / 4;
  }));
  EXPECT_EQ(rules, Rules{"C: holds slots and heads in the other order (2,304 bytes)"});
}

TEST(Findings, DescribeARawCopyByOffsets) {
  // Each row from three rows further: by axes that is another element for nearly every place.
  auto extents = memory([](const Coordinates& at, Extent& extent) {
    const std::int64_t row =
        ((at[ContentAxis::layer] * 2 + at[ContentAxis::kv]) * 12 + at[ContentAxis::token]) * 4 + at[ContentAxis::head] + 3;
    extent.is.at[ContentAxis::layer] = row / 96, extent.is.at[ContentAxis::kv] = row / 48 % 2;
    extent.is.at[ContentAxis::token] = row / 4 % 12, extent.is.at[ContentAxis::head] = row % 4;
  });
  for (Extent& extent : extents) extent.region = 0, extent.from = 1, extent.from_offset = extent.offset + 48;
  EXPECT_EQ(sentences(extents), Rules{"C, layers 0..2: content lies 48 bytes nearer than declared (3,072 bytes)"});
  // Two halves from two places: no one distance holds.
  for (Extent& extent : extents) extent.region = 0, extent.from = 1, extent.from_offset = extent.offset + 48;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::size_t far = (i * 37 + 11) % extents.size();
    if (i % 8 == 0) extents[i].is.at = extents[far].should.at, extents[i].from_offset = extents[far].offset;
  }
  const Rules rules = sentences(extents);
  EXPECT_GT(rules.size(), 1U);
}

/// Content of every block laid with `stride` from one slot to the next, in place of 64; what lies there twice is the last.
std::vector<Extent> laid_with(std::int64_t stride) {
  auto extents =
      memory([](const Coordinates&, Extent& extent) { extent.is = {ByteSource::Kind::nothing, 0, 0, 0, {}, ""}; });
  const auto right = memory([](const Coordinates&, Extent&) {});
  for (const Extent& from : right) {
    const std::int64_t slot = from.should.at[ContentAxis::slot], begin = from.offset - slot * 64;
    for (Extent& extent : extents)
      if (extent.offset == begin + slot * stride) extent.is = from.should;
  }
  for (Extent& extent : extents) extent.region = 0, extent.wrong = extent.is != extent.should;
  return extents;
}

TEST(Findings, RecoverStridesExactly) {
  auto extents = laid_with(32);
  const Rules rules = sentences(extents);
  ASSERT_FALSE(rules.empty());
  const auto says = [&](const std::string& text) {
    return std::ranges::any_of(sentences(extents),
                               [&](const std::string& rule) { return rule.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(says("content lies with slots 32 bytes apart; declared: slots 64 (1,536 bytes)")) << rules[0];
  // A row that is elsewhere is not counted.
  const auto moved =
      std::ranges::find_if(extents, [](const Extent& f) { return f.wrong && f.is.kind == ByteSource::Kind::element; });
  moved->is.at[ContentAxis::head] = (moved->is.at[ContentAxis::head] + 1) % 4;
  EXPECT_TRUE(says("content lies with slots 32 bytes apart; declared: slots 64 (1,520 bytes)"));
}

TEST(Findings, RecoverOnlyStridesOfWholeCodes) {
  // Rows of K, but for the first byte of their first code.
  auto extents = laid_with(32);
  for (Extent& extent : extents)
    if (extent.should.at[ContentAxis::kv] == 0) ++extent.offset, --extent.bytes, extent.should.byte = extent.is.byte = 1;
  const Rules rules = sentences(extents);
  EXPECT_TRUE(std::ranges::count(rules, "C: content lies with slots 32 bytes apart; declared: slots 64 (1,488 bytes)"))
      << rules[0];
}

TEST(Findings, FindNoStridesInABlockTable) {
  // Two heads of every token are next to one another, and tokens anywhere: 48 places for 96 rows are no rule.
  auto extents = memory([](const Coordinates&, Extent&) {});
  std::erase_if(extents, [](const Extent& extent) { return extent.should.at[ContentAxis::head] > 1; });
  std::vector<std::size_t> places(48);
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::ranges::shuffle(places, std::mt19937{1});
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::size_t row = places[i / 2];
    extents[i].is.at = extents[row * 2 + i % 2].should.at;
    extents[i].region = 0, extents[i].from = 1;
    extents[i].from_offset = static_cast<std::int64_t>(row) * 640 + static_cast<std::int64_t>(i % 2) * 32;
    extents[i].wrong = extents[i].is != extents[i].should;
  }
  for (const std::string& rule : sentences(extents)) EXPECT_EQ(rule.find("apart"), std::string::npos) << rule;
}

TEST(Findings, DoNotTakeAWriteForARead) {
  // Of a request that belongs nowhere here, so that it cannot be said where it should lie.
  auto extents = laid_with(32);
  for (Extent& extent : extents) {
    if (extent.wrong && extent.is.kind == ByteSource::Kind::element) extent.is.at[ContentAxis::request] = 2, extent.from = 0;
    extent.from_offset = extent.offset / 2;
  }
  for (const std::string& rule : sentences(extents)) EXPECT_EQ(rule.find("was read"), std::string::npos) << rule;
}

TEST(Findings, NameWhereAReadWithOtherStridesRead) {
  // Tokens of P, 64 bytes apart there, were taken every 128 bytes: each place holds another token's head.
  auto extents = laid_with(64);
  const std::size_t count = extents.size();
  for (std::size_t i = 0; i < count; ++i) {
    Extent source = extents[i];
    source.memory = 1, source.region = 1;
    extents.push_back(source);
  }
  for (std::size_t i = 0; i < count; ++i) {
    Extent& extent = extents[i];
    const std::int64_t from = extent.offset + extent.should.at[ContentAxis::slot] * 64;
    extent.from = 1, extent.from_offset = from;
    const auto there = std::ranges::find_if(extents, [&](const Extent& f) { return f.memory == 1 && f.offset == from; });
    if (there != extents.end()) extent.is = there->should;
    extent.wrong = extent.is != extent.should;
  }
  Labels called = labels();
  called.memories.push_back("P");
  const auto all = what_happened(extents, called);
  ASSERT_FALSE(all.empty());
  // But for the 8 rows behind the end.
  EXPECT_EQ(all[0].text, "C: was read with slots 128 bytes apart in P/kv; declared: slots 64 (2,176 bytes)");
}

TEST(Findings, CountRightBytesInTheirScope) {
  // A corner of a box cannot be said as one product of sets: every byte is counted all the same.
  const auto extents = memory([](const Coordinates& at, Extent& extent) {
    if (at[ContentAxis::token] + at[ContentAxis::head] < 5 && at[ContentAxis::layer] == 0)
      extent.is = {ByteSource::Kind::unknown, 0, 0, 0, {}, ""};
  });
  std::int64_t wrong = 0, covered = 0;
  for (const Extent& extent : extents) wrong += extent.wrong ? extent.bytes : 0;
  for (const Finding& one : what_happened(extents, labels())) covered += one.bytes;
  EXPECT_EQ(covered, wrong);
}

TEST(Findings, NeverIncludeRightBytes) {
  // A diagonal: every head and every slot has wrong bytes, and most of their product is right.
  const Rules rules = sentences(memory([](const Coordinates& at, Extent& extent) {
    if (at[ContentAxis::slot] == at[ContentAxis::head]) extent.is = {ByteSource::Kind::constant, 7, 0, 0, {}, ""};
  }));
  ASSERT_EQ(rules.size(), 4U);
  EXPECT_EQ(rules[0], "C, tokens 0, 4, 8 (blocks 1, 5, 7), head 0: holds 0x07 (192 bytes)");
}

TEST(Findings, NameContentWhereNoneBelongs) {
  auto extents = memory([](const Coordinates&, Extent&) {});
  Extent extra;
  extra.offset = 4096, extra.bytes = 16, extra.channels = 8, extra.wrong = true;
  extra.should.kind = ByteSource::Kind::nothing;
  extra.should.at.at = {0, none, 0, 0, none, 2, 3, 1, 0};
  extra.is.kind = ByteSource::Kind::element;
  extra.is.at.at = {0, 2, 0, 0, 9, none, none, 1, 0};
  extents.push_back(extra);
  EXPECT_EQ(sentences(extents),
            Rules{"C, layer 0, K, block 2, slot 3, head 1: holds request B, layer 0, K, token 9, head 1, "
                  "where nothing was meant (16 bytes)"});
}

TEST(Maps, TheShortestMapThatHoldsIsChosen) {
  using Kind = AxisMap::Kind;
  const auto kind = [](std::vector<std::pair<std::int64_t, std::int64_t>> pairs) { return map_of(pairs).kind; };
  EXPECT_EQ(kind({{0, 0}, {1, 1}}), Kind::same);
  EXPECT_EQ(kind({{0, 3}, {1, 4}, {2, 5}}), Kind::shift);
  EXPECT_EQ(kind({{1, 0}, {2, 0}}), Kind::always);
  EXPECT_EQ(kind({{0, 0}, {1, 2}, {2, 4}}), Kind::multiple);
  EXPECT_EQ(kind({{0, 0}, {1, 1}, {2, 0}, {3, 1}}), Kind::remainder);
  EXPECT_EQ(kind({{0, 0}, {1, 0}, {2, 2}, {3, 2}}), Kind::rounded);
  EXPECT_EQ(kind({{0, 1}, {1, 0}}), Kind::exchange);
  EXPECT_EQ(kind({{0, 3}, {1, 2}, {2, 1}, {3, 0}}), Kind::reversed);
  EXPECT_EQ(kind({{0, 2}, {1, 0}, {2, 1}}), Kind::table);
  EXPECT_EQ(kind({{0, 2}, {0, 1}}), Kind::tangle);
}

}  // namespace
}  // namespace kvcts::findings
