#include "connector/connector.hpp"

#include <gtest/gtest.h>

#include "connector/axis_offsets.hpp"
#include "connector/planner.hpp"

namespace kvcts::connector {
namespace {

using nlohmann::json;

SideCache side(const std::string& text, const layout::Geometry& g, const layout::Scheme& scheme,
               const layout::TensorSpec& tensors = {}) {
  RankCache rank{g, layout::instantiate(text, g, scheme, tensors), {}};
  rank.claim = rank.truth;
  return {"(template)", text, scheme, {rank}};
}

const layout::Geometry geometry{.layers = 2, .blocks = 6, .block_size = 4, .heads = 2, .head_dim = 16};
const layout::Scheme bf16{"bf16", layout::Dtype::bf16, {}, {}};

ResolvedCase pair(const std::string& producer, const std::string& consumer, const layout::Scheme& p = bf16,
                  const layout::Scheme& q = bf16) {
  ResolvedCase c;
  Group g;
  g.producer = side(producer, geometry, p);
  g.consumer = side(consumer, geometry, q);
  g.requests = {{1, 9, true, {4, 0, 2}, {1, 5, 3}}};
  c.groups = {g};
  return c;
}

Plan plan(const ResolvedCase& c, const std::string& kind, const json& options = json::object()) {
  auto connector = make_connector({"c", kind, options});
  connector->register_caches(c, Side::producer);
  connector->register_caches(c, Side::consumer);
  return connector->plan(c, process::Progress());
}

std::string refusal(const ResolvedCase& c, const json& options = json::object()) {
  try {
    plan(c, "reference", options);
  } catch (const Refusal& e) {
    return e.what();
  }
  return "";
}

TEST(AxisOffsets, AgreeWithLocate) {
  const auto cache = layout::instantiate("L x { K=0 B H C/x N C%x ; K=1 B H C N }", geometry, bf16);
  for (const auto& plane : cache.planes) {
    const auto box = layout::domain(plane);
    for (auto axis : layout::all_axes) {
      const auto f = axis_offsets(plane, axis);
      for (auto v = box.lo[axis]; v < box.hi[axis]; ++v) {
        auto at = box.lo;
        at[axis] = v;
        const auto here = layout::locate(plane, at), base = layout::locate(plane, box.lo);
        ASSERT_TRUE(here && base);
        EXPECT_EQ(f.at(v) - f.at(box.lo[axis]), here->bit - base->bit);
      }
      EXPECT_FALSE(f.holds(box.lo[axis] - 1));
      EXPECT_FALSE(f.holds(box.hi[axis]));
    }
  }
}

TEST(Reference, CopiesAreDisjointAndCoverTheTokens) {
  for (const auto* a : {"L x K B N H C", "L x K B H N C", "B L K N H C", "L x { K=0 B H C/x N C%x ; K=1 B H C N }"}) {
    for (const auto* b : {"L x K B N H C", "L x B H N K C", "K x L x B N H C"}) {
      const auto p = plan(pair(a, b), "reference");
      std::int64_t total = 0, end = -1;
      int region = -1;
      for (const auto& c : p.copies) {
        if (c.dst != region) region = c.dst, end = 0;
        EXPECT_GE(c.dst_offset, end) << "copies are sorted and do not overlap";
        end = c.dst_offset + c.bytes;
        total += c.bytes;
      }
      EXPECT_EQ(total, 2 * 2 * 9 * 2 * 16 * 2);
    }
  }
}

TEST(Reference, MovesWholeRunsBetweenEqualLayouts) {
  const auto p = plan(pair("L x K B N H C", "L x K B N H C"), "reference");
  EXPECT_FALSE(p.relayout);
  EXPECT_EQ(p.copies.size(), 2u * 2 * 3);  // layers, K and V, blocks
  EXPECT_TRUE(plan(pair("L x K B N H C", "L x K B H N C"), "reference").relayout);
}

TEST(Reference, RefusalNamesItsReason) {
  const layout::Scheme fp16{"fp16", layout::Dtype::fp16, {}, {}};
  EXPECT_NE(refusal(pair("L x K B N H C", "L x K B N H C", bf16, fp16)).find("conversion"), std::string::npos);
  const layout::Scheme scaled{"fp8", layout::Dtype::e4m3fn, layout::ScaleSpec{layout::Dtype::fp32, 0}, {}};
  const layout::Scheme plain{"fp8", layout::Dtype::e4m3fn, {}, {}};
  EXPECT_NE(refusal(pair("L x K B N H C", "L x K B N H C", plain, scaled)).find("scale"), std::string::npos);
  const layout::Scheme int4{"int4", layout::Dtype::int4, {}, {}};
  EXPECT_NE(refusal(pair("L x K B N H C", "L x K B N H C:int4.hi", int4, int4)).find("nibble"), std::string::npos);
  auto c = pair("L x K B N H C", "L x K B N H C");
  c.groups[0].requests[0].consumer_blocks = {1, 5};
  EXPECT_NE(refusal(c).find("block list"), std::string::npos);
  c.groups[0].requests[0].consumer_blocks = {1, 5, 77};
  EXPECT_NE(refusal(c).find("not in its pool"), std::string::npos);
  EXPECT_THROW(make_connector({"c", "reference", {{"refuse", {"everything"}}}}), std::runtime_error);
  EXPECT_THROW(make_connector({"c", "magic", json::object()}), std::runtime_error);
}

TEST(Reference, RefusesByEachRule) {
  auto hetero = pair("L x K B N H C", "L x K B N H C");
  EXPECT_EQ(refusal(hetero, {{"refuse", {"relayout", "block-size", "tp", "head-slice"}}}), "");
  EXPECT_NE(refusal(pair("L x K B N H C", "L x K B H N C"), {{"refuse", {"relayout"}}}).find("orders a block"),
            std::string::npos);
  hetero.groups[0].consumer.ranks.push_back(hetero.groups[0].consumer.ranks[0]);
  EXPECT_NE(refusal(hetero, {{"refuse", {"tp"}}}).find("ranks"), std::string::npos);
  auto sizes = pair("L x K B N H C", "L x K B N H C");
  sizes.groups[0].consumer.ranks[0].geometry.block_size = 8;
  EXPECT_NE(refusal(sizes, {{"refuse", {"block-size"}}}).find("tokens"), std::string::npos);
}

const json unpack5{{"unpack", {"_", "num_blocks", "block_size", "num_heads", "head_dim"}},
                   {"reading", "K B N H C"},
                   {"error", "ValueError"}};

TEST(Contract, RaisesTheErrorOfPython) {
  auto c = pair("L x K B N H C", "L x K B N H C");
  for (auto* s : {&c.groups[0].producer, &c.groups[0].consumer}) {
    *s = side("L x K B N H C", geometry, bf16, {"L", "K B NHC"});
  }
  try {
    plan(c, "contract", unpack5);
    FAIL() << "expected Raised";
  } catch (const Raised& e) {
    EXPECT_EQ(e.type, "ValueError");
    EXPECT_NE(std::string(e.what()).find("not enough values to unpack (expected 5, got 3)"), std::string::npos);
  }
  EXPECT_NO_THROW(plan(pair("L x K B N H C", "L x K B N H C"), "contract", unpack5));
  const json unpack4{{"unpack", {"_", "_", "h", "d"}}, {"reading", "B N H C"}};
  EXPECT_THROW(plan(pair("L x K B N H C", "L x K B N H C"), "contract", unpack4), Raised) << "too many values";
  EXPECT_THROW(make_connector({"c", "contract", {{"unpack", {"a", "b"}}, {"reading", "B"}}}), std::runtime_error);
}

TEST(Contract, MovesWholeBlocksByItsReadingOfTheShape) {
  const auto p = plan(pair("L x K B N H C", "L x K B N H C"), "contract", unpack5);
  ASSERT_EQ(p.copies.size(), 2u * 2 * 3);
  const std::int64_t block = 4 * 2 * 16 * 2;
  for (const auto& c : p.copies) EXPECT_EQ(c.bytes, block);
  EXPECT_EQ(p.copies[0], (Copy{0, 4 * block, 0, 1 * block, block}));
}

TEST(Explicit, PlansTheCopiesOfTheCase) {
  auto c = pair("L x K B N H C", "L x K B N H C");
  c.copies = {{0, 5, 1, 7, 3}};
  EXPECT_EQ(plan(c, "explicit").copies, c.copies);
  EXPECT_TRUE(plan(c, "none").copies.empty());
}

TEST(Finish, IncludesHalfBytesOnlyIfNoOtherElementOwnsThem) {
  std::vector<Copy> odd{{0, 4, 0, 12, 8}};  // bits: half a byte, a half
  finish(odd);
  EXPECT_EQ(odd, (std::vector<Copy>{{0, 0, 0, 1, 2}}));
  std::vector<Copy> halves{{0, 0, 0, 0, 4}};
  EXPECT_NO_THROW(finish(halves));
  std::vector<Copy> other_half{{0, 0, 0, 4, 4}};
  EXPECT_THROW(finish(other_half), Refusal);
  std::vector<Copy> shared{{0, 0, 0, 0, 4}, {1, 4, 0, 4, 4}};
  EXPECT_THROW(finish(shared), Refusal);
}

TEST(Reference, MovesAScaleOfSeveralTokensOnce) {
  const layout::Scheme scaled{"fp8", layout::Dtype::e4m3fn, layout::ScaleSpec{layout::Dtype::e4m3fn, 16}, {}};
  const std::string text = "L x K B N H C & L x scale K B H C N/4";
  const auto p = plan(pair(text, text, scaled, scaled), "reference");
  std::int64_t bytes = 0;
  for (const auto& c : p.copies) bytes += c.bytes;
  EXPECT_EQ(bytes, 2 * 2 * (9 * 2 * 16 + 3 * 2 * 1));  // layers, K and V: data of 9 tokens, scales of their 3 groups of 4
}

TEST(Reference, MovesPackedValueCachesUnchanged) {
  const layout::Scheme int4{"int4", layout::Dtype::int4, {}, {}};
  EXPECT_EQ(refusal(pair("L x K B H C N", "L x K B H C N", int4, int4)), "");
  EXPECT_NE(refusal(pair("L x K B H C N", "L x K B H N C", int4, int4)), "");
}

TEST(Join, MergesOnlyContiguousCopies) {
  std::vector<Copy> copies{{0, 10, 0, 0, 5}, {0, 15, 0, 5, 5}, {0, 30, 0, 10, 5}, {1, 35, 0, 15, 5}};
  join(copies);
  EXPECT_EQ(copies, (std::vector<Copy>{{0, 10, 0, 0, 10}, {0, 30, 0, 10, 5}, {1, 35, 0, 15, 5}}));
}

}  // namespace
}  // namespace kvcts::connector
