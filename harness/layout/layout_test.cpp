// What each operation does, on numbers that can be checked by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "layout/template.hpp"

namespace kvcts::layout {
namespace {

const Scheme fp16{"fp16", Dtype::fp16, {}, {}};
const Scheme nvfp4{"nvfp4", Dtype::e2m1, ScaleSpec{Dtype::e4m3fn, 16}, Dtype::fp32};
const Scheme row_scaled{"fp8_per_token_head", Dtype::e4m3fn, ScaleSpec{Dtype::fp32, 0}, {}};

Coord at(std::int64_t layer, std::int64_t kv, std::int64_t block, std::int64_t slot, std::int64_t head,
         std::int64_t channel) {
  return {{layer, kv, block, slot, head, channel}};
}

std::string message(const auto& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

Cache one_allocation(const std::string& plane, std::int64_t bytes = 1 << 20) {
  return {{{"kv", bytes}}, {plane_from_text(plane)}, {}};
}

// ---- FlashInfer page.cuh (field facts, ran on a CPU): H=2, P=4, D=8, page 3, feature 5 ---------------------------------

std::vector<std::int64_t> offsets_of_page_3(const std::string& text) {
  const Cache cache = instantiate(text, {.layers = 1, .blocks = 5, .block_size = 4, .heads = 2, .head_dim = 8}, fp16);
  std::vector<std::int64_t> out;
  for (int head = 0; head < 2; ++head) {
    for (int slot = 0; slot < 4; ++slot) out.push_back(locate(cache, Component::data, at(0, 0, 3, slot, head, 5))->bit / 16);
  }
  return out;
}
using Offsets = std::vector<std::int64_t>;

TEST(FlashInferOffsets, SeparateNhd) {
  EXPECT_EQ(offsets_of_page_3("L x K x B N H C"), (Offsets{197, 213, 229, 245, 205, 221, 237, 253}));
}
TEST(FlashInferOffsets, SeparateHnd) {
  EXPECT_EQ(offsets_of_page_3("L x K x B H N C"), (Offsets{197, 205, 213, 221, 229, 237, 245, 253}));
}
TEST(FlashInferOffsets, CombinedNhd) {
  EXPECT_EQ(offsets_of_page_3("L x B K N H C"), (Offsets{389, 405, 421, 437, 397, 413, 429, 445}));
}
TEST(FlashInferOffsets, CombinedHnd) {
  EXPECT_EQ(offsets_of_page_3("L x B K H N C"), (Offsets{389, 397, 405, 413, 421, 429, 437, 445}));
}

// ---- map and inverse ---------------------------------------------------------------------------------------------------

TEST(Map, LocatesAndInverts) {
  const Cache cache = one_allocation("data bf16 a0+0 [K=2:57344 B=7:8192 N=16:512 H=4:128 C=64:2]");
  const Coord coord = at(0, 1, 3, 5, 2, 7);
  const auto found = locate(cache, Component::data, coord);
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (Location{0, 8 * (57344 + 3 * 8192 + 5 * 512 + 2 * 128 + 7 * 2), 16}));
  for (int bit : {0, 7, 15}) EXPECT_EQ(inverse(cache, 0, found->bit + bit), (std::vector<Element>{{0, coord}}));
  EXPECT_FALSE(locate(cache, Component::data, at(0, 2, 0, 0, 0, 0)));
  EXPECT_FALSE(locate(cache, Component::data, at(0, 0, 0, 0, 0, -1)));
  EXPECT_FALSE(locate(cache, Component::scale, coord));
}

TEST(Map, PaddingHasNoElement) {
  const Cache cache = one_allocation("data fp16 a0+16 [B=4:64 C=16:2]", 300);
  EXPECT_TRUE(inverse(cache, 0, 8 * 15).empty());
  EXPECT_EQ(inverse(cache, 0, 8 * 16).size(), 1U);
  EXPECT_TRUE(inverse(cache, 0, 8 * (16 + 32)).empty());
  EXPECT_TRUE(inverse(cache, 0, 8 * 299).empty());
}

TEST(Map, OverlappingPlanesGiveSeveralElements) {
  const Cache cache = one_allocation("data uint8 a0+0 [B=3:0 N=4:1]");
  const auto found = inverse(cache, 0, 8 * 2);
  ASSERT_EQ(found.size(), 3U);
  for (const Element& e : found) EXPECT_EQ(e.coord[Axis::slot], 2);
}

TEST(Map, NibbleOrder) {
  const Plane low = plane_from_text("data int4 a0+8 [C=4:4b]");
  const Plane high = plane_from_text("data int4 hi a0+8 [C=4:4b]");
  EXPECT_EQ(locate(low, at(0, 0, 0, 0, 0, 0))->bit, 64);
  EXPECT_EQ(locate(low, at(0, 0, 0, 0, 0, 1))->bit, 68);
  EXPECT_EQ(locate(high, at(0, 0, 0, 0, 0, 0))->bit, 68);
  EXPECT_EQ(locate(high, at(0, 0, 0, 0, 0, 1))->bit, 64);
  EXPECT_EQ(inverse(high, 70).front().coord[Axis::channel], 0);
}

TEST(Map, BitsBetweenElementsAreUnowned) {
  Plane plane;
  plane.dtype = Dtype::fp16;
  plane.modes = {{Axis::slot, 3, 8 * 16}, {Axis::channel, 4, 32}};  // half of each step is free
  for (std::int64_t bit = 0; bit < 3 * 8 * 16; ++bit) EXPECT_EQ(inverse(plane, bit).size(), bit % 32 < 16 ? 1U : 0U) << bit;
}

TEST(Map, NegativeStrideAndSplitAxis) {
  const Plane plane = plane_from_text("data fp32 a0+28 {C=8} [C=2:-16 C=4:-4]");
  EXPECT_EQ(locate(plane, at(0, 0, 0, 0, 0, 8))->bit, 8 * 28);
  EXPECT_EQ(locate(plane, at(0, 0, 0, 0, 0, 13))->bit, 8 * (28 - 16 - 4));
  EXPECT_EQ(inverse(plane, 8 * 8).front().coord[Axis::channel], 13);
  EXPECT_EQ(bounds(plane), (ByteRange{0, 32}));
}

TEST(Map, OverflowIsAnError) {
  Plane plane = plane_from_text("data fp16 a0+0 [B=4:2 C=4:2]");
  plane.modes[0].stride = std::numeric_limits<std::int64_t>::max() / 2 / 8 * 8;
  EXPECT_NE(message([&] { (void)bounds(plane); }).find("overflow"), std::string::npos);
  EXPECT_NE(message([&] { (void)locate(plane, at(0, 0, 3, 0, 0, 0)); }).find("overflow"), std::string::npos);
  EXPECT_NE(message([&] { (void)runs(plane, domain(plane)); }).find("overflow"), std::string::npos);
  const Geometry huge{.layers = 1LL << 20, .blocks = 1LL << 40, .block_size = 16, .heads = 8, .head_dim = 128};
  EXPECT_NE(message([&] { (void)instantiate("K L B N H C", huge, fp16); }).find("overflow"), std::string::npos);
}

// ---- checks ------------------------------------------------------------------------------------------------------------

TEST(Check, ValidateNamesTheDefect) {
  EXPECT_NE(message([] { validate(one_allocation("data fp16 a0+0 [B=4:64 C=16:2]", 223)); }).find("reaches bytes [0, 224)"),
            std::string::npos);
  EXPECT_NE(message([] { validate(one_allocation("data fp16 a0-2 [C=16:2]")); }).find("[-2,"), std::string::npos);
  EXPECT_NE(message([] { validate(one_allocation("data fp16 a1+0 [C=16:2]")); }).find("allocation 1"), std::string::npos);
  EXPECT_NE(message([] { validate(one_allocation("data fp16 a0+0 [C=4:64@3 C=4:2]")); }).find("two places"),
            std::string::npos);
  EXPECT_NE(message([] { validate(one_allocation("data fp16 a0+4b [C=4:2]")); }).find("multiple of 8"), std::string::npos);
  Cache cache = one_allocation("data fp16 a0+0 [C=16:2]", 32);
  EXPECT_EQ(message([&] { validate(cache); }), "no error");
  cache.tensors.push_back({"kv", 0, 0, Dtype::fp16, Component::data, {}, {{17, 2, "C"}}});
  EXPECT_NE(message([&] { validate(cache); }).find("tensor 'kv' reaches bytes [0, 34)"), std::string::npos);
  cache.planes[0].modes[0].extent = 0;
  EXPECT_NE(message([&] { validate(cache); }).find("extent of 1 or more"), std::string::npos);
}

TEST(Check, HolesAreTheUnownedBits) {
  const Cache cache =
      instantiate("L x B { N H C ; pad 10 }", {.blocks = 3, .block_size = 2, .heads = 1, .head_dim = 4, .kv = 1}, fp16);
  EXPECT_EQ(holes(cache, 0), (std::vector<ByteRange>{{16, 26}, {42, 52}, {68, 78}}));
  EXPECT_EQ(holes(one_allocation("data fp16 a0+2 [C=4:2]", 12), 0), (std::vector<ByteRange>{{0, 2}, {10, 12}}));
}

TEST(Check, OverlapsAreFound) {
  EXPECT_TRUE(overlaps(one_allocation("data fp16 a0+0 [K=2:57344 B=7:8192 N=16:512 H=4:128 C=64:2]"), 0).empty());
  // Aliased blocks, and a stride that is two bytes too small.
  ASSERT_EQ(overlaps(one_allocation("data fp16 a0+0 [B=7:0 C=64:2]"), 0).size(), 1U);
  const auto tight = overlaps(one_allocation("data fp16 a0+0 [B=7:126 C=64:2]"), 0);
  ASSERT_EQ(tight.size(), 1U);
  EXPECT_EQ(tight[0].bit, 8 * 126);
  // Not nested, yet one-to-one: 0 2 4 3 5 7.
  EXPECT_TRUE(overlaps(one_allocation("data uint8 a0+0 [B=2:3 C=3:2]"), 0).empty());
  // Neighbours in one byte.
  Cache nibbles = one_allocation("data int4 a0+0 []");
  nibbles.planes.push_back(plane_from_text("data int4 a0+4b []"));
  EXPECT_TRUE(overlaps(nibbles, 0).empty());
  // Two planes: the second begins inside the first, far from its start.
  Cache two = one_allocation("data fp16 a0+0 [B=1000000:256 C=64:2]", 1LL << 40);
  two.planes.push_back(plane_from_text("scale e8m0 a0+128 [B=1000000:256 C=8:1]"));
  EXPECT_TRUE(overlaps(two, 0).empty());
  two.planes[1].offset = (999'990LL * 256 + 127) * 8;
  const auto found = overlaps(two, 0);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].plane_a, 0);
  EXPECT_EQ(found[0].plane_b, 1);
}

// ---- comparison --------------------------------------------------------------------------------------------------------

TEST(Equal, EquivalentNotationsAreOneMap) {
  const Cache whole = one_allocation("data fp16 a0+0 [K=2:57344 B=7:8192 N=16:512 H=4:128 C=64:2]");
  const Cache split = one_allocation("data fp16 a0+0 [C=8:16 B=7:8192 K=2:57344 N=4:2048 H=4:128 N=4:512 L=1:9 C=8:2]");
  EXPECT_TRUE(same_map(whole, split));
  EXPECT_EQ(normalised(whole.planes[0]), normalised(split.planes[0]));
  Cache halves = one_allocation("data fp16 a0+0 [B=7:8192 N=16:512 H=4:128 C=64:2]");
  halves.planes.push_back(plane_from_text("data fp16 a0+57344 {K=1} [B=7:8192 N=16:512 H=4:128 C=64:2]"));
  EXPECT_TRUE(same_map(whole, halves));
  Cache more = halves;  // a part that only one side has
  more.planes.push_back(plane_from_text("data fp16 a0+200000 {K=2} [B=7:8192 C=64:2]"));
  EXPECT_FALSE(same_map(halves, more));
  EXPECT_FALSE(same_map(more, halves));
  halves.planes[1].origin[Axis::kv] = 2;
  EXPECT_FALSE(same_map(whole, halves));
  EXPECT_FALSE(same_map(whole, one_allocation("data bf16 a0+0 [K=2:57344 B=7:8192 N=16:512 H=4:128 C=64:2]")));
  EXPECT_FALSE(same_map(whole, one_allocation("data fp16 a0+0 [K=2:57344 B=7:8192 H=4:2048 N=16:128 C=64:2]")));
}

TEST(Equal, DetectsTheSameBytesUnderOtherNames) {
  const Plane nhd = plane_from_text("data fp16 a0+0 [B=7:8192 N=16:512 H=4:128 C=64:2]");
  const Plane hnd = plane_from_text("data fp16 a0+0 [B=7:8192 H=4:2048 N=16:128 C=64:2]");
  EXPECT_EQ(same_bytes_other_names(nhd, hnd), "slot <-> head");
  EXPECT_EQ(same_bytes_other_names(nhd, nhd), std::nullopt);
  // Other bytes: a padded row.
  EXPECT_EQ(same_bytes_other_names(nhd, plane_from_text("data fp16 a0+0 [B=7:8192 N=16:512 H=4:256 C=64:2]")), std::nullopt);
  // [2, nb] read as [nb, 2].
  const Plane major = plane_from_text("data fp16 a0+0 [K=2:28672 B=7:4096 C=64:2]");
  const Plane block = plane_from_text("data fp16 a0+0 [B=7:8192 K=2:4096 C=64:2]");
  EXPECT_EQ(same_bytes_other_names(plane_from_text("data fp16 a0+0 [K=2:4096 B=2:8192 C=64:2]"),
                                   plane_from_text("data fp16 a0+0 [B=2:4096 K=2:8192 C=64:2]")),
            "kv <-> block");
  EXPECT_EQ(same_bytes_other_names(major, block), std::nullopt);  // extents 2 and 7 do not refine each other
}

// ---- runs --------------------------------------------------------------------------------------------------------------

using RunList = std::vector<Run>;

Box box(Coord lo, Coord hi) { return {lo, hi}; }

TEST(Runs, AnNhdBlockIsOneRunAndAHeadIsNot) {
  const Plane nhd = plane_from_text("data fp16 a0+0 [B=7:8192 N=16:512 H=4:128 C=64:2]");
  const auto block = runs(nhd, box(at(0, 0, 3, 0, 0, 0), at(1, 1, 4, 16, 4, 64)));
  EXPECT_EQ(block, (RunList{{8 * 3 * 8192, 8 * 8192, at(0, 0, 3, 0, 0, 0)}}));
  const auto heads = runs(nhd, box(at(0, 0, 3, 0, 1, 0), at(1, 1, 4, 16, 3, 64)));
  ASSERT_EQ(heads.size(), 16U);
  EXPECT_EQ(heads[5], (layout::Run{8 * (3 * 8192 + 5 * 512 + 128), 8 * 256, at(0, 0, 3, 5, 1, 0)}));
  const Plane hnd = plane_from_text("data fp16 a0+0 [B=7:8192 H=4:2048 N=16:128 C=64:2]");
  EXPECT_EQ(runs(hnd, box(at(0, 0, 3, 0, 1, 0), at(1, 1, 4, 16, 3, 64))).size(), 1U);
  EXPECT_TRUE(runs(nhd, box(at(0, 0, 7, 0, 0, 0), at(1, 1, 9, 16, 4, 64))).empty());
}

TEST(Runs, PartialDigitsOfASplitAxis) {
  // Slots 3..9 of scales interleaved by four tokens.
  const Plane plane = plane_from_text("scale e4m3fn a0+0 [N=4:16 C=4:4 N=4:1]");
  const auto found = runs(plane, box(at(0, 0, 0, 3, 0, 0), at(1, 1, 1, 9, 1, 4)));
  std::vector<std::pair<std::int64_t, std::int64_t>> bytes;
  for (const layout::Run& r : found) bytes.emplace_back(r.bit / 8, r.bits / 8);
  // Token 3 of each group of channels; tokens 4..7 whole, joined with the last of the former; token 8.
  EXPECT_EQ(bytes, (std::vector<std::pair<std::int64_t, std::int64_t>>{
                       {3, 1}, {7, 1}, {11, 1}, {15, 18}, {36, 1}, {40, 1}, {44, 1}}));
}

TEST(Runs, AWholeXPackedBlockIsOneRun) {
  const Cache cache = instantiate("L x { K=0 B H C/x N C%x ; K=1 B H C N }",
                                  {.blocks = 4, .block_size = 16, .heads = 2, .head_dim = 64}, fp16);
  for (const Plane& p : cache.planes) {
    EXPECT_EQ(runs(p, box(at(0, 0, 2, 0, 0, 0), at(1, 2, 3, 16, 2, 64))).size(), 1U);
    EXPECT_EQ(runs(p, domain(p)).size(), 1U);
  }
}

TEST(Runs, HighNibbleFirst) {
  const Plane plane = plane_from_text("data int4 hi a0+0 [C=16:4b]");
  const auto found = runs(plane, box(at(0, 0, 0, 0, 0, 3), at(1, 1, 1, 1, 1, 8)));
  EXPECT_EQ(found, (RunList{{8, 4, at(0, 0, 0, 0, 0, 3)}, {16, 16, at(0, 0, 0, 0, 0, 5)}}));
}

// ---- text --------------------------------------------------------------------------------------------------------------

TEST(Text, PlanesRoundTripThroughTheirNotation) {
  const std::string text = "data bf16 a0+0 [K=2:57344 B=7:8192 N=16:512 H=4:128 C=64:2]";
  EXPECT_EQ(to_text(plane_from_text(text)), text);
  const std::string odd = "data e2m1 hi a3-4b {L=3,C=512} [C=2:64@96 N=16:0 C=32:4b]";
  EXPECT_EQ(to_text(plane_from_text(odd)), odd);
  EXPECT_EQ(order(plane_from_text(text)), "KBNHC");
  EXPECT_EQ(order(plane_from_text("data fp16 a0+0 [B=2:6144 H=3:2048 C=8:256 N=16:16 C=8:2]")), "BHCNC");
}

TEST(Text, ErrorsNameTheColumn) {
  EXPECT_EQ(message([] { (void)plane_from_text("data bf16 a0+0 [K=2:57344 Q=7:8192]"); }),
            "column 27: expected an axis letter (L K B N H C), found 'Q=7:8192]'");
  EXPECT_NE(message([] { (void)plane_from_text("data bf17 a0+0 []"); }).find("column 6"), std::string::npos);
  EXPECT_NE(message([] { (void)plane_from_text("data bf16 a0+0 [K=0:2]"); }).find("extent of 1 or more"), std::string::npos);
  EXPECT_NE(message([] { (void)plane_from_text("data bf16 a0+99999999999999999999 []"); }).find("overflow"),
            std::string::npos);
  EXPECT_NE(message([] { (void)cache_from_text("allocation kv 10\n\nnonsense"); }).find("line 3, column 1"),
            std::string::npos);
}

// ---- templates ---------------------------------------------------------------------------------------------------------

TEST(Template, PlacesSideScalesAfterTheData) {
  const Cache cache = instantiate("L x { K=0 B H C/x N C%x ; K=1 B H C N }",
                                  {.layers = 2, .blocks = 7, .block_size = 16, .heads = 3, .head_dim = 64}, nvfp4);
  std::vector<std::string> names;
  for (const Allocation& a : cache.allocations) names.push_back(a.name);
  EXPECT_EQ(names, (std::vector<std::string>{"kv.L0", "kv.L1", "scale.L0", "scale.L1", "gscale"}));
  EXPECT_EQ(to_text(cache.planes[0]), "data e2m1 a0+0 [B=7:1536 H=3:512 C=2:256 N=16:16 C=32:4b]");
  EXPECT_EQ(to_text(cache.planes[5]), "scale e4m3fn a2+1344 {K=1} [B=7:192 H=3:64 C=4:16 N=16:1]");
  EXPECT_EQ(to_text(cache.planes.back()), "gscale fp32 a4+0 [L=2:8 K=2:4]");
  const Cache rows =
      instantiate("L x B N C=0..4 & L x B N C=4..6", {.blocks = 2, .block_size = 4, .head_dim = 6, .kv = 1}, row_scaled);
  ASSERT_EQ(rows.planes.size(), 3U);  // one scale per row, with the part that holds channel 0
  EXPECT_EQ(to_text(rows.planes[2]), "scale fp32 a2+0 [B=2:16 N=4:4 C=1:4]");
}

TEST(Template, OriginsAreAbsolute) {
  const Geometry shard{
      .layers = 2, .blocks = 3, .block_size = 4, .heads = 2, .head_dim = 8, .first_layer = 6, .first_head = 4};
  const Cache cache = instantiate("L x B K N H C", shard, fp16);
  EXPECT_EQ(cache.allocations[1].name, "kv.L7");
  EXPECT_FALSE(locate(cache, Component::data, at(0, 0, 0, 0, 0, 0)));
  EXPECT_EQ(locate(cache, Component::data, at(7, 1, 2, 3, 5, 7))->allocation, 1);
}

TEST(Template, PlacesScalesInAPageFooter) {
  const Cache cache =
      instantiate("L x B { N { C=0..448 :e4m3fn ; C=448..512 :bf16 } ; N { scale C=0..7 :e8m0 ; pad 1 } }",
                  {.blocks = 3, .block_size = 64, .head_dim = 512, .kv = 1}, {"fp8", Dtype::e4m3fn, {}, {}}, {"L", "B N *"});
  EXPECT_EQ(cache.allocations[0].bytes, 3 * 64 * 584);
  EXPECT_EQ(locate(cache, Component::data, at(0, 0, 1, 2, 0, 448))->bit, 8 * (64 * 584 + 2 * 576 + 448));
  EXPECT_EQ(locate(cache, Component::scale, at(0, 0, 1, 2, 0, 6))->bit, 8 * (64 * 584 + 64 * 576 + 2 * 8 + 6));
  EXPECT_EQ(cache.tensors[0].dims, (std::vector<Dim>{{3, 64 * 584, "B"}, {64, 584, "N"}, {584, 1, "*"}}));
  EXPECT_EQ(cache.tensors[0].dtype, Dtype::uint8);
}

TEST(Template, InterleavesScalesOfV) {
  const std::int64_t P = 8;
  const std::int64_t S = 4;
  const Cache cache = instantiate("L x B K H N C & L x scale B { K=0 H N C ; K=1 H N/4 C N%4 }",
                                  {.blocks = 2, .block_size = P, .heads = 2, .head_dim = 64}, nvfp4);
  // FlashInfer fp4_quantization.py: out[(t / 4) * 4 * S + s * 4 + t % 4] = in[t * S + s] in each [P, S] tile.
  for (std::int64_t t = 0; t < P; ++t) {
    for (std::int64_t s = 0; s < S; ++s) {
      const std::int64_t tile = (1 * 2 + 1) * 2 * P * S + 1 * P * S;  // block 1, K=1, head 1
      EXPECT_EQ(locate(cache, Component::scale, at(0, 1, 1, t, 1, s))->bit / 8, tile + (t / 4) * 4 * S + s * 4 + t % 4);
    }
  }
}

TEST(Template, AllowsDifferentWidthsOfKAndV) {
  const Geometry g{.blocks = 2, .block_size = 4, .heads = 3, .head_dim = 8, .v_head_dim = 4};
  const Cache cache = instantiate("L x B N H { K=0 C ; K=1 C }", g, fp16, {"L", "B N H KC"});
  EXPECT_EQ(cache.tensors[0].dims.back(), (Dim{12, 2, "KC"}));
  EXPECT_EQ(locate(cache, Component::data, at(0, 1, 0, 0, 1, 3))->bit, 8 * 2 * (12 + 8 + 3));
  EXPECT_FALSE(locate(cache, Component::data, at(0, 1, 0, 0, 1, 4)));
  EXPECT_EQ(instantiate("K x L x B N H C", g, fp16).allocations[1], (Allocation{"v.L0", 2 * 4 * 3 * 4 * 2}));
  EXPECT_NE(message([&] { (void)instantiate("L x K B N H C", g, fp16); }).find("one width"), std::string::npos);
}

TEST(Template, RefusesImpossibleViews) {
  const Geometry g{.blocks = 2, .block_size = 16, .heads = 2, .head_dim = 64};
  EXPECT_NE(
      message([&] { (void)instantiate("L x K B H N C", g, fp16, {"L", "K B NHC"}); }).find("not one strided dimension"),
      std::string::npos);
  EXPECT_NE(message([&] { (void)instantiate("L x K B N H C", g, fp16, {"L", "K B H C"}); }).find("axis N of extent 16"),
            std::string::npos);
  EXPECT_NE(message([&] { (void)instantiate("L x K B N H C", g, fp16, {"L", "K B Q"}); }).find("column 5"),
            std::string::npos);
  EXPECT_NE(message([&] { (void)instantiate("L x K B N H C", g, fp16, {"L", "L B"}); }).find("each axis once"),
            std::string::npos);
  EXPECT_NE(message([&] {
              (void)instantiate("L x { K=0 B H C/x N C%x ; K=1 B H C N }", g, fp16, {"L", "K B NHC"});
            }).find("strided"),
            std::string::npos);
  const auto raw = instantiate("L x { K=0 B H C/x N C%x ; K=1 B H C N }", g, fp16, {"L", "K B (NHC)"}).tensors[0];
  EXPECT_EQ(raw.dims, (std::vector<Dim>{{2, 8192, "K"}, {2, 4096, "B"}, {2048, 2, "(NHC)"}}));
}

TEST(Template, ShowsPackedCodesAsBytes) {
  const Geometry g{.blocks = 2, .block_size = 16, .heads = 2, .head_dim = 64};
  const Cache cache = instantiate("L x { K=0 B H C/x N C%x ; K=1 B H C N }", g, nvfp4, {"L K", ""});
  // Two codes per byte along the contiguous dim: C of the key, N of the value.
  EXPECT_EQ(cache.tensors[0].dtype, Dtype::uint8);
  EXPECT_EQ(cache.tensors[0].dims,
            (std::vector<Dim>{{2, 1024, "B"}, {2, 512, "H"}, {2, 256, "C"}, {16, 16, "N"}, {16, 1, "C"}}));
  EXPECT_EQ(cache.tensors[1].dims, (std::vector<Dim>{{2, 1024, "B"}, {2, 512, "H"}, {64, 8, "C"}, {8, 1, "N"}}));
}

TEST(Template, ErrorsNameTheRemedy) {
  const Geometry g{.blocks = 2, .block_size = 16, .heads = 2, .head_dim = 40};
  EXPECT_EQ(message([] { check_template("L x K B N Q"); }), "column 11: expected '&' or the end of the template, found 'Q'");
  EXPECT_EQ(
      message([] { check_template("B { C ; scale :fp32 C }"); }),
      "column 21: expected the dtype behind the modes and the component of its part (scale C=0..4 :fp32), found 'C }'");
  EXPECT_NE(message([] { check_template("L x B N B C"); }).find("axis B only once"), std::string::npos);
  EXPECT_NE(message([] { check_template("L x B C/x N"); }).find("both digits"), std::string::npos);
  EXPECT_NE(message([] { check_template("B L x C"); }).find("list levels before"), std::string::npos);
  EXPECT_NE(message([] { check_template("L x { B C ; "); }).find("a part"), std::string::npos);
  EXPECT_NE(message([&] { (void)instantiate("L x { K=0 B H C/x N C%x ; K=1 B H C N }", g, nvfp4); }).find("does not divide"),
            std::string::npos);
  EXPECT_NE(message([&] { (void)instantiate("L x K B H C", g, fp16); }).find("axis N (slot) has extent 16"),
            std::string::npos);
  EXPECT_NE(message([&] { (void)instantiate("L x K B N H C & L x scale K B N H C", g, fp16); }).find("has none"),
            std::string::npos);
  EXPECT_NE(message([&] { (void)instantiate("L x K B N H { C ; pad 0-1 }", g, fp16); }).find("leaves room"),
            std::string::npos);
}

// ---- names -------------------------------------------------------------------------------------------------------------

TEST(Names, MapTemplatesToNamesAndBack) {
  const Names n = names_of("L x K B N H C");
  EXPECT_EQ(n.letters, "L|K B N H C");
  EXPECT_EQ(n.lmcache, "NL_X_TWO_NB_BS_NH_HS");
  EXPECT_EQ(n.vllm, "");  // K outside the row: no name among vLLM's six
  for (const char* name : {"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"}) {
    EXPECT_EQ(names_of(template_from_name(name)).vllm, name);
  }
  EXPECT_EQ(template_from_name("HND"), "L x B H N K C");
  EXPECT_EQ(template_from_name("flashinfer:HND"), "L x B K H N C");
  EXPECT_EQ(template_from_name("NL_X_TWO_NB_NH_ONE_BS_HS"), "L x K B H N C");
  EXPECT_EQ(template_from_name("TWO_X_NL_X_NBBS_NH_HS"), "K x L x B N H C");
}

TEST(Names, UnknownNamesListTheNearest) {
  EXPECT_NE(message([] { (void)template_from_name("LBNCH"); }).find("LBNHC"), std::string::npos);
  EXPECT_NE(message([] { (void)template_from_name("NL_X_TWO_NB_BS_NH"); }).find("NL_X_TWO_NB_BS_NH_HS"), std::string::npos);
  EXPECT_NE(message([] { (void)template_from_name("operationalNHD"); }).find("OperationalNHD"), std::string::npos);
}

// ---- readings ----------------------------------------------------------------------------------------------------------

std::vector<std::string> letters(const std::vector<Reading>& list) {
  std::vector<std::string> out;
  for (const Reading& r : list) out.push_back(r.letters);
  std::sort(out.begin(), out.end());
  return out;
}
bool has(const std::vector<Reading>& list, const std::string& text) {
  const auto all = letters(list);
  return std::find(all.begin(), all.end(), text) != all.end();
}

TEST(Readings, XformersShapeIsAmbiguousWhenTwoBlocks) {
  const Facts model{.block_size = 16, .heads = 3, .head_dim = 64};
  EXPECT_EQ(letters(readings({2, 7, 3072}, model)), (std::vector<std::string>{"K B NHC"}));
  // NIXL 0.9.0.1 read (2, 7, 3072) as MLA: two blocks of 7 tokens of 3072.
  EXPECT_TRUE(has(readings({2, 7, 3072}, {}), "B N C"));
  EXPECT_TRUE(has(readings({2, 7, 3072}, {}), "K B NHC"));
}

TEST(Readings, DistinguishKMajorFromBlockMajor) {
  const Facts model{.block_size = 16, .heads = 3, .head_dim = 64};
  const auto clear = readings({2, 7, 16, 3, 64}, model);
  EXPECT_EQ(letters(clear), (std::vector<std::string>{"K B N H C"}));
  EXPECT_EQ(settled_by(clear), "");
  const auto two = readings({2, 2, 16, 3, 64}, model);
  EXPECT_EQ(letters(two), (std::vector<std::string>{"B K N H C", "K B N H C"}));
  EXPECT_EQ(settled_by(two), "axis names");
}

TEST(Readings, DistinguishNhdFromHnd) {
  const auto open = readings({2, 7, 16, 3, 64}, {.blocks = 7, .head_dim = 64});
  EXPECT_EQ(letters(open), (std::vector<std::string>{"K B H N C", "K B N H C"}));
  EXPECT_EQ(settled_by(open), "num_kv_heads");
  const auto square = readings({2, 7, 16, 16, 64}, {.block_size = 16, .heads = 16, .head_dim = 64});
  EXPECT_EQ(letters(square), (std::vector<std::string>{"K B H N C", "K B N H C"}));
  EXPECT_EQ(settled_by(square), "axis names");
}

TEST(Readings, StridesTellBlocksFromSlots) {
  // [B, H, N, C] under NHD strides; only the strides identify the row [N, B, H, C] of a permuted view.
  const Facts model{.heads = 3, .head_dim = 64};
  EXPECT_TRUE(has(readings({7, 3, 16, 64}, model, {3072, 64, 192, 1}), "B H N C"));
  EXPECT_TRUE(has(readings({16, 7, 3, 64}, model, {192, 3072, 64, 1}), "N B H C"));
  EXPECT_FALSE(has(readings({16, 7, 3, 64}, model, {192, 3072, 64, 1}), "B N H C"));
  EXPECT_TRUE(has(readings({16, 7, 3, 64}, model), "B N H C"));
  EXPECT_FALSE(has(readings({16, 7, 3, 64}, model), "N B H C"));
  EXPECT_THROW((void)readings({16, 7}, {}, {1}), Error);
}

TEST(Readings, TakeExtentsFromTheShape) {
  const auto list = readings({28, 2, 8}, {.block_size = 4, .heads = 2, .head_dim = 8});
  ASSERT_EQ(letters(list), (std::vector<std::string>{"BN H C"}));
  EXPECT_EQ(list[0].extents, (std::vector<std::int64_t>{0, 0, 7, 4, 2, 8}));
}

TEST(Readings, FusedRowIsSettledByTheWidth) {
  const auto open = readings({7, 3, 16, 128}, {.block_size = 16, .heads = 3});
  EXPECT_TRUE(has(open, "B H N C"));
  EXPECT_TRUE(has(open, "B H N KC"));
  EXPECT_EQ(letters(readings({7, 3, 16, 128}, {.block_size = 16, .heads = 3, .head_dim = 64})),
            (std::vector<std::string>{"B H N KC"}));
}

}  // namespace
}  // namespace kvcts::layout
