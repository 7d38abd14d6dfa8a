// Drawings of plain cases: NHD blocks read as HND, nothing moved, unowned bytes.
#include "diagnose/region_extents.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve.hpp"
#include "scene/oracle/oracle.hpp"
#include "testing/checkout.hpp"

namespace kvcts::diagnose {
namespace {

using nlohmann::json;
using Bytes = std::vector<std::uint8_t>;
using ByteView = std::span<const std::uint8_t>;

struct ExecutedScenario {
  ResolvedCase c;
  RegionRef region;
  std::int64_t base{0};
  std::vector<Bytes> producer;
  Bytes before, expected, found;

  explicit ExecutedScenario(const std::string& order = "L x B K N H C") {
    static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
    std::string text = R"(
case: my/plain
dtype: bf16
geometry: {layers: 1, blocks: 4, block_size: 4, heads: 2, head_dim: 16}
producer: {template: "L x B K N H C"}
consumer: {template: "L x B K N H C"}
requests: [{tokens: 8, producer_blocks: [2, 0], consumer_blocks: [1, 3]}]
)";
    for (std::size_t at; (at = text.find("L x B K N H C")) != std::string::npos && order != "L x B K N H C";)
      text.replace(at, order.size(), order);
    c = resolve(catalogue::parse_cases(text, "(test)", &catalogue).front(), catalogue);
    region = regions(c, Side::consumer).front();
    const auto shape = oracle::file_shape(c, region.bytes);
    base = shape.base;
    for (const auto& r : regions(c, Side::producer)) {
      producer.emplace_back(static_cast<std::size_t>(shape.size));
      oracle::write_initial(c, r, 0, producer.back());
    }
    before = expected = Bytes(static_cast<std::size_t>(shape.size));
    oracle::write_initial(c, region, 0, before);
    oracle::write_expected(c, region, 0, expected);
    found = expected;
  }
  RegionExtents extents() const {
    RegionExtents out(c, {producer.begin(), producer.end()});
    out.add({region, before, expected, found});
    out.search();
    return out;
  }
  json moves() const { return extents().moves(); }
  std::vector<std::string> happened() const {
    std::vector<std::string> out;
    for (const Finding& one : extents().what_happened()) out.push_back(one.text);
    return out;
  }
  /// With the output of a reader, and the producer as it was found.
  std::vector<std::string> happened_to(const Bytes& output, const std::vector<Bytes>& sources) const {
    std::vector<ByteView> now(producer.begin(), producer.end());
    RegionExtents all(c, now);
    const auto source_regions = regions(c, Side::producer);
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (sources[i] != producer[i]) all.add({source_regions[i], producer[i], producer[i], sources[i]});
    all.add({region, before, expected, found});
    const auto want = oracle::expected_output(c, 0);
    const auto shape = oracle::file_shape(c, static_cast<std::int64_t>(want.size()));
    Bytes gathered_before(static_cast<std::size_t>(shape.size), 0x5a), gathered = gathered_before;
    std::ranges::copy(want, gathered.begin() + shape.base);
    Bytes seen = gathered_before;
    std::ranges::copy(output, seen.begin() + shape.base);
    RegionRef of;
    of.name = "output", of.group = -1, of.bytes = static_cast<std::int64_t>(want.size());
    all.add({of, gathered_before, gathered, seen});
    all.search();
    std::vector<std::string> out;
    for (const Finding& one : all.what_happened()) out.push_back(one.text);
    return out;
  }
  auto at(std::int64_t offset) { return found.begin() + base + offset; }
};

TEST(Moves, ARunIsToldByItsHome) {
  ExecutedScenario s;
  EXPECT_TRUE(s.moves().is_null()) << "nothing is wrong";
  // Block 1 of the consumer: slots 1 and 2 of head 0 exchanged. A row has 32 bytes, a slot 64, a block 512.
  std::swap_ranges(s.at(512 + 64), s.at(512 + 96), s.at(512 + 128));
  const json picture = s.moves();
  EXPECT_EQ(picture.at("moves_from"), "bytes");
  const json& moves = picture.at("moves");
  const auto run = [&](std::int64_t offset) {
    return *std::find_if(moves.begin(), moves.end(), [&](const json& m) { return m["offset"] == offset; });
  };
  EXPECT_EQ(run(512).at("should"), json({0, 0, 0, 2, 0, 0, 0, 1}));
  EXPECT_EQ(run(512).at("did"), run(512).at("should"));
  EXPECT_EQ(run(576).at("should"), json({0, 0, 0, 2, 1, 0, 0, 1}));
  EXPECT_EQ(run(576).at("did"), json({0, 0, 0, 2, 2, 0, 0, 1})) << "slot 2 arrived where slot 1 belongs";
  EXPECT_EQ(run(640).at("did"), json({0, 0, 0, 2, 1, 0, 0, 1}));
  EXPECT_EQ(std::count_if(moves.begin(), moves.end(), [](const json& m) { return m["should"] != m["did"]; }), 2);
  EXPECT_EQ(picture.at("bytes_left_out"), 0);
}

TEST(Moves, WhatNeverArrivedWhatIsDamagedAndWhatNobodyKnows) {
  ExecutedScenario s;
  std::copy(s.before.begin() + s.base + 512, s.before.begin() + s.base + 544, s.at(512));    // never written
  for (int i = 0; i < 32; ++i) s.at(544)[i] = static_cast<std::uint8_t>(7 + 3 * i);          // unowned
  std::copy(s.expected.begin() + s.base + 512, s.expected.begin() + s.base + 544, s.at(0));  // into a free block
  const json moves = s.moves().at("moves");
  EXPECT_EQ(moves[0].at("offset"), 0);
  EXPECT_EQ(moves[0].at("should"), "nothing: an unowned slot");
  EXPECT_EQ(moves[0].at("did"), json({0, 0, 0, 2, 0, 0, 0, 1}));
  EXPECT_EQ(moves[1].at("did"), "what was there before");
  EXPECT_EQ(moves[2].at("did"), "unknown");
}

TEST(Moves, GuardsAreDrawnAsFarAsTheyAreWrong) {
  ExecutedScenario s;
  std::copy(s.expected.begin() + s.base + 512, s.expected.begin() + s.base + 528, s.at(2048));  // beyond the end: half a row
  const json moves = s.moves().at("moves");
  const json& last = moves.back();
  SCOPED_TRACE(moves.dump());
  EXPECT_EQ(last.at("offset"), 2048);
  EXPECT_EQ(last.at("bytes"), 16);
  EXPECT_EQ(last.at("should"), "nothing: no data belongs here");
  EXPECT_EQ(last.at("did"), json({0, 0, 0, 2, 0, 0, 0, 1}));
}

TEST(RegionExtents, AreSaidInWords) {
  using Words = std::vector<std::string>;
  ExecutedScenario s;
  EXPECT_EQ(s.happened(), Words{});
  std::swap_ranges(s.at(512), s.at(1024), s.at(1536));  // blocks 1 and 3: tokens 0..3 and 4..7
  EXPECT_EQ(s.happened(), Words{"consumer: holds tokens exchanged: 4..7 for 0..3, 0..3 for 4..7 (1,024 bytes)"});

  ExecutedScenario half;  // the second half of K's rows of block 1 never came
  for (std::int64_t row = 0; row < 8; ++row)
    std::copy_n(half.before.begin() + half.base + 512 + row * 32 + 16, 16, half.at(512 + row * 32 + 16));
  EXPECT_EQ(half.happened(), Words{"consumer, K, tokens 0..3 (block 1), channels 8..15: not written (128 bytes)"});

  // Slots innermost: a row is one code, known by its neighbours; the last ones by those in front.
  ExecutedScenario inner("L x B K H C N");
  std::copy_n(inner.expected.begin() + inner.base + 512, 512, inner.at(0));
  EXPECT_EQ(inner.happened(), Words{"consumer, block 0: holds request 0, layer 0, K and V, tokens 0..3, heads 0..1, where "
                                    "nothing was meant (512 bytes)"});

  ExecutedScenario beyond;
  std::copy_n(beyond.expected.begin() + beyond.base + 512, 512, beyond.at(0));
  EXPECT_EQ(beyond.happened(), Words{"consumer, block 0: holds request 0, layer 0, K and V, tokens 0..3, heads 0..1, where "
                                     "nothing was meant (512 bytes)"});
}

TEST(RegionExtents, AReaderAndAChangedSourceAreSaidToo) {
  using Words = std::vector<std::string>;
  ExecutedScenario s;
  const Bytes want = oracle::expected_output(s.c, 0);
  EXPECT_EQ(s.happened_to(want, s.producer), Words{});

  // Two heads of 32 bytes, exchanged on the way out of a right cache.
  Bytes exchanged = want;
  for (std::size_t row = 0; row + 64 <= exchanged.size(); row += 64)
    std::swap_ranges(exchanged.begin() + row, exchanged.begin() + row + 32, exchanged.begin() + row + 32);
  EXPECT_EQ(s.happened_to(exchanged, s.producer), Words{"output: holds heads 0 and 1 exchanged (1,024 bytes)"});

  // What was gathered is what lies in the cache, which is wrong.
  ExecutedScenario wrong;
  std::swap_ranges(wrong.at(512), wrong.at(1024), wrong.at(1536));
  Bytes gathered = want;
  for (std::size_t kv = 0; kv < 2; ++kv)
    std::swap_ranges(gathered.begin() + kv * 512, gathered.begin() + kv * 512 + 256, gathered.begin() + kv * 512 + 256);
  EXPECT_EQ(wrong.happened_to(gathered, wrong.producer),
            (Words{"consumer: holds tokens exchanged: 4..7 for 0..3, 0..3 for 4..7 (1,024 bytes)",
                   "output: as it lies in the consumer (1,024 bytes)"}));

  // An unowned slot of the consumer.
  Bytes unowned = want;
  std::copy_n(s.found.begin() + s.base, 256, unowned.begin());
  EXPECT_EQ(s.happened_to(unowned, s.producer),
            Words{"output, K, tokens 0..3: holds what was in the consumer before anything was written (256 bytes)"});

  // The source: block 0 (tokens 4..7) over block 2, once it was sent.
  std::vector<Bytes> sources = s.producer;
  std::copy_n(sources[0].begin() + s.base, 512, sources[0].begin() + s.base + 1024);
  EXPECT_EQ(s.happened_to(want, sources), Words{"producer, tokens 0..3 (block 2): holds tokens 4..7 (512 bytes)"});
}

}  // namespace
}  // namespace kvcts::diagnose
