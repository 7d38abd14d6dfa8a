// Bytes in words: windows of plain cases whose runs are made here, and of scripted cases; what joins, and how it is
// described.
#include "diagnose/dump/dump.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve.hpp"
#include "diagnose/window.hpp"
#include "scene/oracle/oracle.hpp"
#include "scene/oracle/tail.hpp"
#include "testing/checkout.hpp"

namespace kvcts::dump {
namespace {

using Bytes = std::vector<std::uint8_t>;

const catalogue::Catalogue& catalogue() {
  static const catalogue::Catalogue instance(checkout::source() + "/cases");
  return instance;
}

ResolvedCase resolved_of(const std::string& yaml) {
  return resolve(catalogue::parse_cases(yaml, "(test)", &catalogue()).front(), catalogue());
}

ResolvedCase plain() {
  return resolved_of(R"(
case: my/plain
dtype: fp16
geometry: {layers: 1, blocks: 4, block_size: 2, heads: 2, head_dim: 8}
producer: {template: "L x B K N H C", tp: 2}
consumer: {template: "L x B K H N C", tp: 1}
requests: [{tokens: 3, producer_blocks: [2, 0], consumer_blocks: [1, 3]}]
)");
}

/// The window after a run that left what `make` does to the region as expected; `at`: its first byte.
template <class Make>
std::vector<ComparedRange> after(const ResolvedCase& c, const Window& w, Make&& make) {
  const RegionRef region = region_of(c, w.region);
  const auto shape = oracle::file_shape(c, region.bytes);
  Bytes before(static_cast<std::size_t>(shape.size)), file(before.size());
  oracle::write_initial(c, region, 0, before);
  oracle::write_expected(c, region, 0, file);
  make(file, file.begin() + shape.base, before.begin() + shape.base);
  const auto at = file.begin() + shape.base + w.offset;
  return read_window(c, w, {at, at + w.bytes});
}
const auto right = [](Bytes&, auto, auto) {};

// A row (head) has 16 bytes, K of a block two heads of two slots: 64. A block has 128.
constexpr const char* consumer = "consumer/g0/r0/kv.L0";

TEST(Dump, NamesWhereBytesLayInTheProducer) {
  const auto extents = after(plain(), {consumer, 128, 64}, right);
  ASSERT_EQ(extents.size(), 4u);
  EXPECT_EQ(extents[0].place, "K layer 0 block 1 slot 0 head 0");
  EXPECT_EQ(to_string(extents[0].found), "K layer 0 block 2 slot 0 head 0 channel 0..7, generation 1, token 0, from rank 0");
  EXPECT_EQ(to_string(extents[3].found), "K layer 0 block 2 slot 1 head 1 channel 0..7, generation 1, token 1, from rank 1");
  EXPECT_TRUE(std::none_of(extents.begin(), extents.end(), [](const ComparedRange& s) { return s.wrong; }));
}

TEST(Dump, NamesWrongBytesAsFarAsOneRunShows) {
  const auto extents = after(plain(), {consumer, 128, 96}, [](Bytes&, auto at, auto before) {
    std::swap_ranges(at + 128, at + 144, at + 144);  // slots exchanged
    std::copy_n(before + 160, 16, at + 160);         // a row that was not written
    std::fill_n(at + 176, 16, std::uint8_t{0});
    at[200] ^= 1;
    for (int i = 208; i < 224; ++i) at[i] ^= static_cast<std::uint8_t>(i);
  });
  ASSERT_EQ(extents.size(), 8u);
  EXPECT_EQ(to_string(extents[0].expected),
            "K layer 0 block 2 slot 0 head 0 channel 0..7, generation 1, token 0, from rank 0");
  EXPECT_EQ(to_string(extents[0].found), "K layer 0 block 2 slot 1 head 0 channel 0..7, generation 1, token 1, from rank 0");
  EXPECT_EQ(to_string(extents[1].found), "K layer 0 block 2 slot 0 head 0 channel 0..7, generation 1, token 0, from rank 0");
  EXPECT_EQ(to_string(extents[2].found), "what was there before");
  EXPECT_EQ(to_string(extents[3].found), "0x00");
  EXPECT_EQ(extents[5].offset, 200);
  EXPECT_EQ(extents[5].bytes, 1);
  EXPECT_EQ(to_string(extents[5].expected), "V layer 0 block 2 slot 0 head 0 channel 4, generation 1, token 0, from rank 0");
  EXPECT_EQ(to_string(extents[5].found), "too short to tell");
  EXPECT_EQ(to_string(extents[6].found), "V layer 0 block 2 slot 0 head 0 channel 4..7, generation 1, token 0, from rank 0")
      << "the rest of its row";
  EXPECT_EQ(to_string(extents[7].found), "unknown");
  for (std::size_t i = 0; i < extents.size(); ++i) EXPECT_EQ(extents[i].wrong, i != 4 && i != 6) << i;
}

TEST(Dump, ASwappedBlockAndAnOverrunGuardAreNamed) {
  const auto swapped =
      after(plain(), {consumer, 384, 16}, [](Bytes&, auto at, auto) { std::swap_ranges(at + 128, at + 256, at + 384); });
  ASSERT_EQ(swapped.size(), 1u);
  EXPECT_TRUE(swapped[0].wrong);
  EXPECT_EQ(to_string(swapped[0].expected),
            "K layer 0 block 0 slot 0 head 0 channel 0..7, generation 1, token 2, from rank 0");
  EXPECT_EQ(to_string(swapped[0].found), "K layer 0 block 2 slot 0 head 0 channel 0..7, generation 1, token 0, from rank 0");
  const auto overrun =
      after(plain(), {consumer, 512 - 8, 32}, [](Bytes&, auto at, auto) { std::copy_n(at + 132, 12, at + 512); });
  ASSERT_EQ(overrun.size(), 3u);
  EXPECT_EQ(overrun[1].place, "guard above");
  EXPECT_EQ(overrun[1].bytes, 12);
  EXPECT_TRUE(overrun[1].wrong);
  EXPECT_EQ(to_string(overrun[1].expected), "nothing: no data belongs here");
  EXPECT_EQ(to_string(overrun[1].found), "K layer 0 block 2 slot 0 head 0 channel 2..7, generation 1, token 0, from rank 0");
  EXPECT_EQ(to_string(overrun[2].found), "poison of consumer/g0/r0/kv.L0 + 524..535");
}

TEST(Dump, ShowsFreeSlotsGuardsAndTheStateBefore) {
  const ResolvedCase c = plain();
  const auto guard = read_window(c, {consumer, -8, 16}, {});
  ASSERT_EQ(guard.size(), 2u);
  EXPECT_EQ(guard[0].place, "guard below");
  EXPECT_EQ(to_string(guard[0].found), "poison of consumer/g0/r0/kv.L0 - 1..8");
  EXPECT_EQ(guard[1].place, "K layer 0 block 0 slot 0 head 0 (free slot)");
  EXPECT_EQ(to_string(read_window(c, {consumer, 128, 16}, {}).front().found), "poison of consumer/g0/r0/kv.L0 + 128..143");
  EXPECT_EQ(to_string(read_window(c, {"producer/g0/r1/kv.L0", 128, 16}, {}).front().found),
            "K layer 0 block 2 slot 0 head 1 channel 0..7, generation 1, token 0, from rank 1");
  // The last block has one token: its second slot may hold the producer's, or not, and nothing else.
  const Window tail{consumer, 3 * 128 + 16, 16};
  EXPECT_FALSE(after(c, tail, right).front().wrong);
  const auto whole_blocks = after(c, tail, [&](Bytes& file, auto, auto) {
    std::vector<Bytes> producer;
    for (const auto& r : regions(c, Side::producer)) {
      producer.emplace_back(static_cast<std::size_t>(oracle::file_shape(c, r.bytes).size));
      oracle::write_initial(c, r, 0, producer.back());
    }
    oracle::Tail(c, region_of(c, consumer))
        .bring_along(std::vector<std::span<const std::uint8_t>>(producer.begin(), producer.end()), file);
  });
  EXPECT_FALSE(whole_blocks.front().wrong);
  EXPECT_NE(to_string(whole_blocks.front().found).find("poison of producer/g0/r0/kv.L0"), std::string::npos)
      << to_string(whole_blocks.front().found);
  EXPECT_TRUE(after(c, tail, [](Bytes&, auto at, auto) { std::copy_n(at + 128, 16, at + 400); }).front().wrong);
}

TEST(Dump, RefusesAWindowOutsideTheRegion) {
  const auto error_of = [](const Window& w, const ResolvedCase& c = plain()) {
    try {
      read_window(c, w, {});
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(error_of({"unknown", 0, 16}).find("there are producer/g0/r0/kv.L0, producer/g0/r1/kv.L0, consumer/g0/r0/kv.L0"),
            std::string::npos);
  EXPECT_NE(error_of({"consumer/g0/r0/kv.L0", 1 << 20, 16}).find("has bytes -"), std::string::npos);
  ResolvedCase large = plain();
  large.guard_bytes = std::int64_t{40} << 20;
  EXPECT_EQ(error_of({"kv.L0", 0, 16}, large),
            "this case has more than 72 MiB to search; `kvcts minimize` makes a smaller one of it");
  EXPECT_EQ(region_of(plain(), "kv.L0").name, "consumer/g0/r0/kv.L0");
}

constexpr const char* order = R"(
case: my/order
dtype: fp16
geometry: {layers: 1, blocks: 5, block_size: 4, heads: 2, head_dim: 8}
memory:
  P: {side: producer, rank: 3, layout: vllm-fa-nhd}
  C: {side: consumer, layout: vllm-fa-hnd}
requests:
  A: {tokens: 6, generation: 4, blocks: {P: [3, 0], C: [2, 4]}}
steps:
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: C, actually: {from: {layout: vllm-fa-hnd}}}
)";

TEST(Dump, NamesBlockSlotAndRankOfTheSourceInAScenario) {
  const ResolvedCase c = resolved_of(order);
  // K, block 2 of C (HND): head 0 slots 0..3, 16 bytes each. NHD data read as HND: slot 1 of head 0 is head 1 of token 0.
  const auto extents = scenario::read_window(c.scenario, c.seed, {"C/kv.L0", 2 * 128, 32, ""});
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[0].place, "K layer 0 block 2 slot 0 head 0");
  EXPECT_FALSE(extents[0].wrong);
  EXPECT_EQ(to_string(extents[0].found),
            "K layer 0 block 3 slot 0 head 0 channel 0..7, generation 4, token 0, from P rank 3");
  EXPECT_TRUE(extents[1].wrong);
  EXPECT_EQ(to_string(extents[1].expected),
            "K layer 0 block 3 slot 1 head 0 channel 0..7, generation 4, token 1, from P rank 3");
  EXPECT_EQ(to_string(extents[1].found),
            "K layer 0 block 3 slot 0 head 1 channel 0..7, generation 4, token 0, from P rank 3");
  EXPECT_EQ(to_string(scenario::read_window(c.scenario, c.seed, {"C", -2, 2, ""}).front().found),
            "poison of C/kv.L0 - 1..2");
  EXPECT_THROW(scenario::read_window(c.scenario, c.seed, {"kv.L0", 0, 4, ""}), std::runtime_error)
      << "both memories have one";
  EXPECT_THROW(scenario::read_window(c.scenario, c.seed, {"C", 0, 4, "nowhere"}), std::runtime_error);
}

TEST(Provenance, JoinsOnlyConsecutiveNeighbours) {
  Provenance a;
  a.kind = Provenance::Kind::element, a.block = 1, a.slot = 0, a.generation = 1;
  Provenance next = a;
  EXPECT_TRUE(extend(a, next)) << "the second byte of a code";
  next.channel = next.last_channel = 1;
  EXPECT_TRUE(extend(a, next));
  EXPECT_EQ(a.last_channel, 1);
  next.channel = next.last_channel = 3;
  EXPECT_FALSE(extend(a, next)) << "a channel is left out";
  next.channel = next.last_channel = 2, next.head = 1;
  EXPECT_FALSE(extend(a, next));
  EXPECT_EQ(place_json(a), nlohmann::json({0, 0, 0, 1, 0, 0, 0, 1}));
  a.component = "scale";
  EXPECT_EQ(to_string(a), "scale K layer 0 block 1 slot 0 head 0 group 0..1, generation 1");
}

}  // namespace
}  // namespace kvcts::dump
