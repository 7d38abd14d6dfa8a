// Drawings and findings of a small transfer, whose bytes each test changes by hand.
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

struct Transferred {
  ResolvedCase c;
  RegionRef region;
  std::int64_t base{0};
  std::vector<Bytes> producer;
  Bytes before, expected, found;

  explicit Transferred(const std::string& order = "L x B K N H C") {
    static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
    std::string text = R"(
case: my/plain
dtype: bf16
geometry: {layers: 1, blocks: 4, block_size: 4, heads: 2, head_dim: 16}
producer: {template: "ORDER"}
consumer: {template: "ORDER"}
requests: [{tokens: 8, producer_blocks: [2, 0], consumer_blocks: [1, 3]}]
)";
    for (std::size_t at; (at = text.find("ORDER")) != std::string::npos;) text.replace(at, 5, order);
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

/// K, head 0, channel 0 of a slot of the producer's block 2, as a drawing has a place: rank, layer, K or V, block, slot,
/// head, channel, generation.
json source_slot(int slot) { return json({0, 0, 0, 2, slot, 0, 0, 1}); }

// The consumer's block 1 receives the producer's block 2. A row has 32 bytes, a slot 64, a block 512.

TEST(Moves, NamesTheSourceOfARun) {
  Transferred s;
  EXPECT_TRUE(s.moves().is_null()) << "nothing is wrong";
  std::swap_ranges(s.at(512 + 64), s.at(512 + 96), s.at(512 + 128));  // slots 1 and 2 of head 0
  const json picture = s.moves();
  EXPECT_EQ(picture.at("moves_from"), "bytes");
  const json& moves = picture.at("moves");
  const auto run = [&](std::int64_t offset) {
    return *std::find_if(moves.begin(), moves.end(), [&](const json& m) { return m["offset"] == offset; });
  };
  EXPECT_EQ(run(512).at("should"), source_slot(0));
  EXPECT_EQ(run(512).at("did"), source_slot(0));
  EXPECT_EQ(run(576).at("should"), source_slot(1));
  EXPECT_EQ(run(576).at("did"), source_slot(2));
  EXPECT_EQ(run(640).at("did"), source_slot(1));
  EXPECT_EQ(std::count_if(moves.begin(), moves.end(), [](const json& m) { return m["should"] != m["did"]; }), 2);
  EXPECT_EQ(picture.at("bytes_left_out"), 0);
}

TEST(Moves, MarksWhatWasNeverWritten) {
  Transferred s;
  std::copy_n(s.before.begin() + s.base + 512, 32, s.at(512));
  const json first = s.moves().at("moves").front();
  EXPECT_EQ(first.at("should"), source_slot(0));
  EXPECT_EQ(first.at("did"), "what was there before");
}

TEST(Moves, MarksBytesOfNoKnownSource) {
  Transferred s;
  for (int i = 0; i < 32; ++i) s.at(544)[i] = static_cast<std::uint8_t>(7 + 3 * i);
  const json moves = s.moves().at("moves");
  const auto wrong = std::find_if(moves.begin(), moves.end(), [](const json& m) { return m["offset"] == 544; });
  ASSERT_NE(wrong, moves.end());
  EXPECT_EQ(wrong->at("did"), "unknown");
}

TEST(Moves, NamesContentInAnUnownedSlot) {
  Transferred s;
  std::copy_n(s.expected.begin() + s.base + 512, 32, s.at(0));
  const json first = s.moves().at("moves").front();
  EXPECT_EQ(first.at("offset"), 0);
  EXPECT_EQ(first.at("should"), "nothing: an unowned slot");
  EXPECT_EQ(first.at("did"), source_slot(0));
}

TEST(Moves, DrawsOnlyTheWrongPartOfAGuard) {
  Transferred s;
  std::copy_n(s.expected.begin() + s.base + 512, 16, s.at(2048));  // beyond the end: half a row
  const json last = s.moves().at("moves").back();
  EXPECT_EQ(last.at("offset"), 2048);
  EXPECT_EQ(last.at("bytes"), 16);
  EXPECT_EQ(last.at("should"), "nothing: no data belongs here");
  EXPECT_EQ(last.at("did"), source_slot(0));
}

using Rules = std::vector<std::string>;

TEST(RegionExtents, NameExchangedBlocks) {
  Transferred s;
  EXPECT_EQ(s.happened(), Rules{});
  std::swap_ranges(s.at(512), s.at(1024), s.at(1536));  // blocks 1 and 3: tokens 0..3 and 4..7
  EXPECT_EQ(s.happened(), Rules{"consumer: holds tokens exchanged: 4..7 for 0..3, 0..3 for 4..7 (1,024 bytes)"});
}

TEST(RegionExtents, NameTheChannelsThatNeverArrived) {
  Transferred s;  // the second half of K's rows of block 1
  for (std::int64_t row = 0; row < 8; ++row)
    std::copy_n(s.before.begin() + s.base + 512 + row * 32 + 16, 16, s.at(512 + row * 32 + 16));
  EXPECT_EQ(s.happened(), Rules{"consumer, K, tokens 0..3 (block 1), channels 8..15: not written (128 bytes)"});
}

// With slots innermost a row is one code, known by its neighbours; the last ones by those in front.
TEST(RegionExtents, NameContentInAFreeBlockWhateverTheOrderOfAxes) {
  for (const char* order : {"L x B K H C N", "L x B K N H C"}) {
    Transferred s(order);
    std::copy_n(s.expected.begin() + s.base + 512, 512, s.at(0));
    EXPECT_EQ(s.happened(), Rules{"consumer, block 0: holds request 0, layer 0, K and V, tokens 0..3, heads 0..1, where "
                                  "nothing was meant (512 bytes)"})
        << order;
  }
}

TEST(RegionExtents, NameHeadsThatAReaderExchanged) {
  Transferred s;
  Bytes gathered = oracle::expected_output(s.c, 0);
  EXPECT_EQ(s.happened_to(gathered, s.producer), Rules{});
  for (std::size_t row = 0; row + 64 <= gathered.size(); row += 64)  // two heads of 32 bytes
    std::swap_ranges(gathered.begin() + row, gathered.begin() + row + 32, gathered.begin() + row + 32);
  EXPECT_EQ(s.happened_to(gathered, s.producer), Rules{"output: holds heads 0 and 1 exchanged (1,024 bytes)"});
}

TEST(RegionExtents, BlameTheCacheForWhatAReaderGatheredFromIt) {
  Transferred s;
  std::swap_ranges(s.at(512), s.at(1024), s.at(1536));
  Bytes gathered = oracle::expected_output(s.c, 0);
  for (std::size_t kv = 0; kv < 2; ++kv)
    std::swap_ranges(gathered.begin() + kv * 512, gathered.begin() + kv * 512 + 256, gathered.begin() + kv * 512 + 256);
  EXPECT_EQ(s.happened_to(gathered, s.producer),
            (Rules{"consumer: holds tokens exchanged: 4..7 for 0..3, 0..3 for 4..7 (1,024 bytes)",
                   "output: as it lies in the consumer (1,024 bytes)"}));
}

TEST(RegionExtents, NameAReadOfAnUnownedSlot) {
  Transferred s;
  Bytes gathered = oracle::expected_output(s.c, 0);
  std::copy_n(s.found.begin() + s.base, 256, gathered.begin());
  EXPECT_EQ(s.happened_to(gathered, s.producer),
            Rules{"output, K, tokens 0..3: holds what was in the consumer before anything was written (256 bytes)"});
}

TEST(RegionExtents, NameWhatOverwroteTheSource) {
  Transferred s;
  std::vector<Bytes> sources = s.producer;
  std::copy_n(sources[0].begin() + s.base, 512, sources[0].begin() + s.base + 1024);  // block 0 over block 2, once sent
  EXPECT_EQ(s.happened_to(oracle::expected_output(s.c, 0), sources),
            Rules{"producer, tokens 0..3 (block 2): holds tokens 4..7 (512 bytes)"});
}

}  // namespace
}  // namespace kvcts::diagnose
