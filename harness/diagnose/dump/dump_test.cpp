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

/// The window after each run, if the region held in run i what `make` writes.
template <class Make>
std::vector<Bytes> after(const ResolvedCase& c, const Window& w, Make&& make) {
  const RegionRef region = region_of(c, w.region);
  const auto shape = oracle::file_shape(c, region.bytes);
  std::vector<Bytes> out;
  for (int i = 0; i < runs; ++i) {
    Bytes file(static_cast<std::size_t>(shape.size));
    make(run_of(c, i), region, file, shape.base);
    out.emplace_back(file.begin() + shape.base + w.offset, file.begin() + shape.base + w.offset + w.bytes);
  }
  return out;
}
const auto right = [](const ResolvedCase& c, const RegionRef& region, Bytes& file, std::int64_t) {
  oracle::write_expected(c, region, 0, file);
};

TEST(Dump, WhatArrivedIsToldByItsHomeInTheProducer) {
  const ResolvedCase c = plain();
  // Consumer block 1: K (head 0: slots 0, 1; head 1: slots 0, 1), 16 bytes each.
  const Window w{"consumer/g0/r0/kv.L0", 128, 64};
  const auto stretches = look(c, w, after(c, w, right));
  ASSERT_EQ(stretches.size(), 4u);
  EXPECT_EQ(stretches[0].place, "K layer 0 block 1 slot 0 head 0");
  EXPECT_EQ(words(stretches[0].found), "K layer 0 block 2 slot 0 head 0 channel 0..7, generation 1, token 0, from rank 0");
  EXPECT_EQ(words(stretches[3].found), "K layer 0 block 2 slot 1 head 1 channel 0..7, generation 1, token 1, from rank 1");
  EXPECT_TRUE(std::none_of(stretches.begin(), stretches.end(), [](const Stretch& s) { return s.wrong; }));
}

TEST(Dump, WrongBytesAreNamedPoisonOfWhomOrUnknown) {
  const ResolvedCase c = plain();
  const Window w{"consumer/g0/r0/kv.L0", 128, 64};
  const auto stretches =
      look(c, w, after(c, w, [](const ResolvedCase& run, const RegionRef& region, Bytes& file, std::int64_t base) {
             oracle::write_expected(run, region, 0, file);
             const auto at = file.begin() + base + 128;
             std::swap_ranges(at, at + 16, at + 16);  // slots exchanged
             Bytes other(file.size());                // the state before the first write
             oracle::write_initial(run, region, 0, other);
             std::copy(other.begin() + base + 64, other.begin() + base + 80, at + 32);  // from another place
             std::fill(at + 48, at + 56, std::uint8_t{0});
             for (int i = 56; i < 64; ++i) at[i] = static_cast<std::uint8_t>(at[i] ^ (run.seed * 37 + 1));  // no one's
           }));
  ASSERT_EQ(stretches.size(), 5u);
  EXPECT_EQ(words(stretches[0].expected),
            "K layer 0 block 2 slot 0 head 0 channel 0..7, generation 1, token 0, from rank 0");
  EXPECT_EQ(words(stretches[0].found), "K layer 0 block 2 slot 1 head 0 channel 0..7, generation 1, token 1, from rank 0");
  EXPECT_EQ(words(stretches[2].found), "poison of consumer/g0/r0/kv.L0 + 64..79");
  EXPECT_EQ(words(stretches[3].found), "0x00");
  EXPECT_EQ(words(stretches[4].found), "unknown");
  EXPECT_TRUE(std::all_of(stretches.begin(), stretches.end(), [](const Stretch& s) { return s.wrong; }));
}

TEST(Dump, FreeSlotsGuardsAndTheStateBefore) {
  const ResolvedCase c = plain();
  const auto guard = look(c, {"consumer/g0/r0/kv.L0", -8, 16}, {});
  ASSERT_EQ(guard.size(), 2u);
  EXPECT_EQ(guard[0].place, "guard below");
  EXPECT_EQ(words(guard[0].found), "poison of consumer/g0/r0/kv.L0 - 1..8");
  EXPECT_EQ(guard[1].place, "K layer 0 block 0 slot 0 head 0 (free slot)");
  // The last block has one token: its second slot may hold the producer's, or not.
  const Window tail{"consumer/g0/r0/kv.L0", 3 * 128 + 16, 16};
  EXPECT_FALSE(look(c, tail, after(c, tail, right)).front().wrong);
  const auto whole_blocks =
      look(c, tail, after(c, tail, [](const ResolvedCase& run, const RegionRef& region, Bytes& file, std::int64_t) {
             std::vector<Bytes> producer;
             for (const auto& r : regions(run, Side::producer)) {
               producer.emplace_back(static_cast<std::size_t>(oracle::file_shape(run, r.bytes).size));
               oracle::write_initial(run, r, 0, producer.back());
             }
             oracle::write_expected(run, region, 0, file);
             const std::vector<std::span<const std::uint8_t>> views(producer.begin(), producer.end());
             oracle::Tail(run, region).bring_along(views, file);
           }));
  EXPECT_FALSE(whole_blocks.front().wrong);
  EXPECT_NE(words(whole_blocks.front().found).find("poison of producer/g0/r0/kv.L0"), std::string::npos)
      << words(whole_blocks.front().found);
}

TEST(Dump, AWindowThatIsNotThereIsSaid) {
  const auto error_of = [](const Window& w) {
    try {
      look(plain(), w, {});
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(error_of({"unknown", 0, 16}).find("there are producer/g0/r0/kv.L0, producer/g0/r1/kv.L0, consumer/g0/r0/kv.L0"),
            std::string::npos);
  EXPECT_NE(error_of({"consumer/g0/r0/kv.L0", 1 << 20, 16}).find("has bytes -"), std::string::npos);
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

TEST(Dump, AScriptedCaseTellsBlockSlotAndRankOfItsSource) {
  const ResolvedCase c = resolved_of(order);
  // K, block 2 of C (HND): head 0 slots 0..3, 16 bytes each. NHD data read as HND: slot 1 of head 0 is head 1 of token 0.
  const auto stretches = script::look(c.script, c.seed, {"C/kv.L0", 2 * 128, 32, ""});
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[0].place, "K layer 0 block 2 slot 0 head 0");
  EXPECT_FALSE(stretches[0].wrong);
  EXPECT_EQ(words(stretches[0].found), "K layer 0 block 3 slot 0 head 0 channel 0..7, generation 4, token 0, from P rank 3");
  EXPECT_TRUE(stretches[1].wrong);
  EXPECT_EQ(words(stretches[1].expected),
            "K layer 0 block 3 slot 1 head 0 channel 0..7, generation 4, token 1, from P rank 3");
  EXPECT_EQ(words(stretches[1].found), "K layer 0 block 3 slot 0 head 1 channel 0..7, generation 4, token 0, from P rank 3");
  EXPECT_EQ(words(script::look(c.script, c.seed, {"C", -2, 2, ""}).front().found), "poison of C/kv.L0 - 1..2");
  EXPECT_THROW(script::look(c.script, c.seed, {"kv.L0", 0, 4, ""}), std::runtime_error) << "both memories have one";
  EXPECT_THROW(script::look(c.script, c.seed, {"C", 0, 4, "nowhere"}), std::runtime_error);
}

TEST(Provenance, NeighboursJoinOnlyWhereTheyGoOn) {
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
  EXPECT_EQ(words(a), "scale K layer 0 block 1 slot 0 head 0 group 0..1, generation 1");
}

}  // namespace
}  // namespace kvcts::dump
