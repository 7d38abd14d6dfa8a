// What people and engines say of a side, and the five answers.
#include <gtest/gtest.h>

#include "testing/checkout.hpp"
#include "testing/temporary_folder.hpp"
#include "tools/compat/answer.hpp"

namespace kvcts::compat {
namespace {

const catalogue::Catalogue& cases() {
  static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
  return catalogue;
}

Answer ask(const std::string& producer, const std::string& consumer, const std::string& connector = "reference",
           const std::string& arch = "cpu", const std::string& geometry = "") {
  Pair pair;
  pair.producer = describe(producer, cases());
  pair.consumer = describe(consumer, cases());
  pair.connector = find_connector(connector, pair.producer, cases());
  pair.geometry = geometry;
  return check(pair, {arch}, cases()).at(0);
}

std::string error_of(const std::string& text) {
  try {
    describe(text, cases());
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Versions, MatchRangesAndLists) {
  EXPECT_TRUE(in_versions("0.10.2", "0.8.5..0.22.1"));
  EXPECT_TRUE(in_versions("0.8.5", "0.8.5..0.22.1"));
  EXPECT_FALSE(in_versions("0.22.2", "0.8.5..0.22.1"));
  EXPECT_FALSE(in_versions("0.9", "0.25.1"));
  EXPECT_TRUE(in_versions("0.25.1", "0.8.5, 0.25.1"));
  EXPECT_TRUE(in_versions("7", ""));
}

TEST(Side, ResolvesBackendsOfTheCatalogue) {
  const auto d = describe("vllm-0.33.0:flash_attn:LBHNC:bf16:tp2:bs32", cases());
  EXPECT_EQ(d.backend, "vllm-flash-attn-0.33");
  EXPECT_EQ(d.layout, "vllm-lbhnc");
  EXPECT_EQ(d.dtype, "bf16");
  EXPECT_EQ(d.tp, 2);
  EXPECT_EQ(d.block_size, 32);
  EXPECT_EQ(describe("vLLM-0.10.2:FLASH_ATTN:HND", cases()).layout, "vllm-fa-hnd");
  EXPECT_EQ(describe("vllm-0.25.1:FlashAttn", cases()).layout, "vllm-blocks-first-nhd");
  EXPECT_EQ(describe("vllm-0.25.1:FlashAttention", cases()).layout, "vllm-blocks-first-nhd");
  EXPECT_EQ(describe("vllm-0.25.1:FlashAttentionBackend", cases()).layout, "vllm-blocks-first-nhd")
      << "the name of the class";
  EXPECT_EQ(describe("vllm-0.10.2:ROCM_FLASH", cases()).layout, "vllm-xformers") << "a backend that only layouts name";
  EXPECT_EQ(describe("sglang-mla:fp8", cases()).dtype, "fp8_e4m3");
  EXPECT_NE(describe("vllm-0.33.0:flash_attn", cases()).note, "") << "a setting was assumed";
}

TEST(Side, NamesMistakesAndGaps) {
  EXPECT_NE(error_of("vllm-0.33.0:flash_atn").find("expected a backend of vllm"), std::string::npos);
  EXPECT_NE(error_of("vlm-0.33.0:flash_attn").find("expected a system"), std::string::npos);
  EXPECT_NE(error_of("vllm-0.33.0:flash_attn:LBNHC:HND").find("found 'HND' beside 'LBNHC'"), std::string::npos);
  EXPECT_NE(error_of("vllm-0.33.0:flash_attn:XYZ").find("expected a layout setting"), std::string::npos);
  EXPECT_NE(error_of("vllm-0.1.0:flash_attn").find("other versions"), std::string::npos);
  EXPECT_NE(error_of("nothing.json").find("cannot be read"), std::string::npos);
  EXPECT_THROW(describe("vllm:flash_attn", cases()), Ambiguous);
}

TEST(Side, InfersTheLayoutFromAShape) {
  const testing_support::TemporaryFolder folder;
  const auto message = [&](const nlohmann::json& what) {
    return describe(folder.write("side.json", what.dump()).string(), cases());
  };
  const auto order = [&](const nlohmann::json& what) { return cases().layouts().at(message(what).layout).text; };
  EXPECT_EQ(order({{"shape", {2, 7, 16, 4, 64}}, {"blocks", 7}, {"block_size", 16}, {"heads", 4}, {"head_dim", 64}}),
            "L x K B N H C");
  EXPECT_EQ(order({{"shape", {2, 7, 16, 4, 64}},
                   {"strides", {28672, 4096, 64, 1024, 1}},
                   {"blocks", 7},
                   {"block_size", 16},
                   {"heads", 4},
                   {"head_dim", 64}}),
            "L x K B H N C");
  try {
    message({{"shape", {2, 2, 16, 16, 64}}});
    FAIL() << "expected Ambiguous";
  } catch (const Ambiguous& open) {
    EXPECT_GT(open.choices.size(), 1u);
    EXPECT_NE(std::string(open.what()).find("declare"), std::string::npos) << open.what();
  }
  EXPECT_THROW(message({{"shapes", {1}}}), Error);
  EXPECT_THROW(message({{"shape", "wide"}}), Error);
  EXPECT_EQ(message({{"backend", "vllm-0.33.0:flash_attn"}, {"layout", "LBHNC"}, {"dtype", "bfloat16"}, {"tp", 4}}).layout,
            "vllm-lbhnc");
}

TEST(Check, GivesEachVerdict) {
  const std::string hnd = "vllm-0.33.0:flash_attn:LBHNC", nhd = "vllm-0.33.0:flash_attn:LBNHC";
  EXPECT_EQ(ask(hnd, hnd, "mooncake").verdict, Verdict::compatible);
  EXPECT_EQ(ask(hnd, nhd).verdict, Verdict::conversion);
  const Answer wrong = ask(hnd, nhd, "mooncake");
  EXPECT_EQ(wrong.verdict, Verdict::wrong);
  EXPECT_NE(wrong.text.find("as they are: vllm-lbhnc"), std::string::npos) << wrong.text;
  EXPECT_EQ(wrong.id, "kv/producer=vllm-lbhnc/consumer=vllm-lbnhc/connector=vllm-mooncake-0.33");
  EXPECT_FALSE(wrong.bytes.empty());
  const Answer refused = ask(hnd, nhd, "nixl");
  EXPECT_EQ(refused.verdict, Verdict::refused);
  EXPECT_EQ(refused.by, "connector");
  EXPECT_NE(refused.text.find("base_worker.py:2808"), std::string::npos) << refused.text;
  EXPECT_EQ(ask(hnd, hnd, "reference", "sm_75").by, "backend");
  EXPECT_EQ(ask(hnd + ":fp16", hnd + ":bf16").verdict, Verdict::refused);
  EXPECT_EQ(ask(hnd + ":bs16", hnd + ":bs32", "nixl").verdict, Verdict::ambiguous) << "not stated of this connector";
  EXPECT_EQ(ask(hnd, hnd, "python-template").verdict, Verdict::ambiguous) << "a program is known when it is run";
  EXPECT_THROW(find_connector("vllm", describe("sglang-nhd", cases()), cases()), Error);
  EXPECT_THROW(find_connector("explicit", describe(hnd, cases()), cases()), Error);
}

// Heads are cut out of a block as if they were outermost in it.
TEST(Check, HandlesUnequalRanks) {
  const std::string hnd = "vllm-0.33.0:flash_attn:LBHNC", nhd = "vllm-0.33.0:flash_attn:LBNHC";
  EXPECT_EQ(ask(hnd + ":tp2", hnd + ":tp4", "mooncake").verdict, Verdict::conversion);
  EXPECT_EQ(ask(hnd + ":tp4", hnd + ":tp2", "mooncake").verdict, Verdict::conversion);
  EXPECT_EQ(ask(nhd + ":tp2", nhd + ":tp4", "mooncake").verdict, Verdict::wrong);
  EXPECT_EQ(ask(nhd + ":tp2", nhd + ":tp4", "nixl").verdict, Verdict::refused);
  EXPECT_EQ(ask(hnd + ":tp2", hnd + ":tp4", "nixl", "cpu", "heads-1").verdict, Verdict::conversion)
      << "replicas: either may be sent";
  EXPECT_EQ(ask(hnd + ":bs16", hnd + ":bs32", "mooncake").verdict, Verdict::refused);
}

// (2, nb, ...) in front of a connector that takes dim 0 for the blocks.
TEST(Check, TwoBlocksInThePoolChangeTheAnswer) {
  EXPECT_EQ(ask("vllm-0.10.2:flash_attn", "vllm-0.10.2:flash_attn", "nixl").verdict, Verdict::refused);
  EXPECT_EQ(ask("vllm-0.10.2:flash_attn", "vllm-0.10.2:flash_attn", "nixl", "cpu", "nb-2-one").verdict, Verdict::wrong);
}

}  // namespace
}  // namespace kvcts::compat
