// The arithmetic of FlashInfer #600 against the report's numbers (field facts: 152 instead of 512, thread blocks 2, 3, 6,
// 7).
#include <gtest/gtest.h>

#include <cstring>

#include "scene/reader/flashinfer_decode.hpp"

namespace kvcts::reader {
namespace {

// B=2, 512 tokens, H_kv=8, page 32, D=128, bf16, cache HND: [pages, 2, H, P, D].
layout::TensorView hnd_tensor(std::int64_t heads = 8, std::int64_t page = 32) {
  layout::TensorView t;
  t.dtype = layout::Dtype::bf16;
  const std::int64_t d = 128;
  t.dims = {{32, 2 * heads * page * d * 2, "B"},
            {2, heads * page * d * 2, "K"},
            {heads, page * d * 2, "H"},
            {page, d * 2, "N"},
            {d, 2, "C"}};
  return t;
}

std::vector<Request> two_requests() {
  std::vector<Request> out(2);
  for (auto& r : out) r.tokens = 512;
  return out;
}

TEST(FlashInferDecode, ReproducesThePublishedNumbersUnderAWrongLabel) {
  const auto view = view_under_label(hnd_tensor(), "NHD");
  EXPECT_EQ(view.page_size, 8);
  EXPECT_EQ(view.num_heads, 32);
  const auto plan = plan_decode(two_requests(), 32, view.page_size, "cuda-core", 128);
  EXPECT_EQ(plan.kv_len, (std::vector<std::uint32_t>{152, 152}));
  ASSERT_EQ(plan.tiles.size(), 8u);
  EXPECT_EQ(plan.runaway(), (std::vector<std::size_t>{2, 3, 6, 7}));
  EXPECT_EQ(plan.tiles[2].length, 4294967192u);
  EXPECT_EQ(plan.tiles[3].length, 4294967064u);
  EXPECT_NE(plan.text().find("2, 3, 6, 7"), std::string::npos);
}

TEST(FlashInferDecode, RightLabelGathersEveryTokenOnce) {
  const auto view = view_under_label(hnd_tensor(), "HND");
  EXPECT_EQ(view.page_size, 32);
  const auto plan = plan_decode(two_requests(), 32, view.page_size, "cuda-core", 128);
  EXPECT_EQ(plan.kv_len, (std::vector<std::uint32_t>{512, 512}));
  EXPECT_TRUE(plan.runaway().empty());
  for (const auto& tile : plan.tiles) EXPECT_EQ(tile.length, 128u);
}

TEST(FlashInferDecode, TensorCoreVariantClampsAndEndsEarly) {
  const auto plan = plan_decode(two_requests(), 32, 8, "tensor-core", 128);
  EXPECT_TRUE(plan.runaway().empty());
  std::uint32_t gathered = 0;
  for (const auto& tile : plan.tiles) gathered += tile.length;
  EXPECT_EQ(gathered, 2 * 152u);
}

TEST(FlashInferDecode, ReadsAPartialLastPage) {
  std::vector<Request> r(1);
  r[0].tokens = 100;
  EXPECT_EQ(plan_decode(r, 32, 32, "cuda-core", 128).kv_len[0], 100u);
  EXPECT_EQ(plan_decode(r, 32, 8, "cuda-core", 128).kv_len[0], 3 * 8u + 4);
}

TEST(FlashInferDecode, RefusesBadOptions) {
  EXPECT_THROW(view_under_label(hnd_tensor(), "NDH"), std::runtime_error);
  EXPECT_THROW(plan_decode(two_requests(), 32, 32, "quantum", 128), std::runtime_error);
  layout::TensorView flat;
  flat.dims = {{2, 1, "K"}, {7, 1, "B"}, {3072, 1, "NHC"}};
  EXPECT_THROW(view_under_label(flat, "NHD"), std::runtime_error);
  EXPECT_THROW(make_reader({"x", "telescope", {}}), std::runtime_error);
}

}  // namespace
}  // namespace kvcts::reader
