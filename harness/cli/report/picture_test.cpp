// Pictures of small cases of the catalogue, against what the layouts say by hand.
#include "cli/report/picture.hpp"

#include <gtest/gtest.h>

#include "case/resolve/resolve.hpp"
#include "cli/report/columns.hpp"
#include "matrix/ids.hpp"
#include "testing/checkout.hpp"

namespace kvcts::report {
namespace {

using nlohmann::json;

const catalogue::Catalogue& cases() {
  static const catalogue::Catalogue instance(checkout::source() + "/cases");
  return instance;
}
// Geometry small: 3 layers, 7 blocks of 16 tokens, 4 heads, head_dim 64; one request of 40 tokens.
ResolvedCase resolved(const std::string& id) {
  matrix::Space space(cases());
  return resolve(matrix::spec_from_id(space, id), cases());
}
const char* const nhd_to_hnd = "kv/producer=vllm-fa-nhd/consumer=vllm-fa-hnd/dtype=fp16/ids=identity";

// A plan of one copy, as the workers report it.
json plan_of(std::int64_t from, std::int64_t to, std::int64_t bytes, bool relayout = false) {
  return {{"copies", 1}, {"bytes", bytes}, {"relayout", relayout}, {"sample", {{0, from, 0, to, bytes}}}};
}

TEST(Picture, DescribesTheLayoutOfBothSides) {
  const json p = picture(resolved(nhd_to_hnd), nullptr);
  const auto& group = p.at("groups").at(0);
  // L x K B N H C and L x K B H N C: strides in bits, outermost first.
  const auto& nhd = group.at("producer").at("regions").at(0);
  EXPECT_EQ(nhd.at("name"), "producer/g0/r0/kv.L0");
  EXPECT_EQ(nhd.at("bytes"), 2 * 7 * 16 * 4 * 64 * 2);
  EXPECT_EQ(nhd.at("planes").at(0).at("modes"),
            json::parse(R"([["K",2,458752,1],["B",7,65536,1],["N",16,4096,1],["H",4,1024,1],["C",64,16,1]])"));
  EXPECT_EQ(group.at("consumer").at("regions").at(0).at("planes").at(0).at("modes"),
            json::parse(R"([["K",2,458752,1],["B",7,65536,1],["H",4,16384,1],["N",16,1024,1],["C",64,16,1]])"));
  EXPECT_EQ(group.at("producer").at("regions").size(), 1u) << "the other layers look the same";
  EXPECT_EQ(group.at("producer").at("allocations"), 3);
  EXPECT_EQ(group.at("requests").at(0).at("from"), json({0, 1, 2}));
  EXPECT_FALSE(p.contains("moves")) << "no plan, no moves";
  EXPECT_FALSE(group.at("producer").contains("claimed"));
}

TEST(Picture, TracesEachCopyOfAPlanRunByRun) {
  // The second block of K moved as it lies: [slot][head] arrives where [head][slot] is declared.
  const json p = picture(resolved(nhd_to_hnd), plan_of(8192, 8192, 8192));
  const auto& moves = p.at("moves");
  ASSERT_EQ(moves.size(), 64u) << "16 slots of 4 heads, a row of channels each";
  EXPECT_EQ(moves[0].at("region"), "consumer/g0/r0/kv.L0");
  EXPECT_EQ(moves[0].at("bytes"), 128);
  // rank, layer, kv, block, slot, head, channel, generation
  EXPECT_EQ(moves[0].at("should"), json({0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(moves[0].at("did"), moves[0].at("should"));
  EXPECT_EQ(moves[1].at("offset"), 8192 + 128);
  EXPECT_EQ(moves[1].at("should"), json({0, 0, 0, 1, 1, 0, 0, 1})) << "head 0 of slot 1";
  EXPECT_EQ(moves[1].at("did"), json({0, 0, 0, 1, 0, 1, 0, 1})) << "head 1 of slot 0";
  EXPECT_EQ(moves[17].at("should"), json({0, 0, 0, 1, 1, 1, 0, 1}));
  EXPECT_EQ(p.at("bytes_left_out"), 0);
}

TEST(Picture, FollowsTokensAcrossUnequalBlockSizes) {
  // Consumer blocks of 32 tokens: its block 0 holds the producer's blocks 0 and 1.
  const json p = picture(resolved("kv/producer=vllm-fa-nhd/dtype=fp16/cbs=32/ids=identity"), plan_of(8192, 8192, 512));
  EXPECT_EQ(p.at("moves").at(0).at("should"), json({0, 0, 0, 1, 0, 0, 0, 1}))
      << "slot 16 of block 0 is slot 0 of the producer's block 1";
  EXPECT_EQ(p.at("moves").at(0).at("did"), p.at("moves").at(0).at("should"));
}

TEST(Picture, LabelsBytesOutsideTheData) {
  const auto c = resolved(nhd_to_hnd);
  EXPECT_EQ(picture(c, plan_of(0, 6 * 8192, 128)).at("moves").at(0).at("should"), "nothing: a free block");
  // 40 tokens: slots 8.. of the third block are beyond the last token. HND: head 0, slot 8.
  EXPECT_EQ(picture(c, plan_of(0, 2 * 8192 + 8 * 128, 128)).at("moves").at(0).at("should"),
            "nothing: beyond the last token");
  EXPECT_EQ(picture(c, plan_of(-64, 0, 64)).at("moves").at(0).at("did"), "outside of the data");
  EXPECT_EQ(picture(c, plan_of(6 * 8192, 0, 128)).at("moves").at(0).at("did").at(7), 0)
      << "an unowned block has no generation";
  EXPECT_FALSE(picture(c, plan_of(0, 0, 128, true)).contains("moves"))
      << "bytes that were re-laid on the way came from elsewhere";
}

TEST(Picture, ReplacesThePlanInFailedResults) {
  const auto c = resolved(nhd_to_hnd);
  CaseResult r;
  r.outcome = Outcome::fail;
  r.evidence_files = {{"plan", plan_of(0, 0, 128).dump()}, {"stdout", "x"}};
  r.picture = {{"moves_from", "bytes"}};
  const json plan = take_plan(r);
  EXPECT_EQ(r.evidence_files.size(), 1u);
  EXPECT_TRUE(take_plan(r).is_null());
  add_picture(c, plan, r);
  EXPECT_EQ(r.picture.at("moves").size(), 1u);
  EXPECT_EQ(r.picture.at("moves_from"), "bytes") << "what was there stays";
  CaseResult passed;
  passed.outcome = Outcome::pass;
  add_picture(c, plan, passed);
  EXPECT_TRUE(passed.picture.is_null());
}

TEST(Columns, EncodeTextsAndIdsCompactly) {
  WordColumn one;
  for (int i = 0; i < 3; ++i) one.add("x");
  EXPECT_EQ(one.json(), json({{"d", {"x"}}, {"w", 0}, {"v", ""}}));
  WordColumn many;
  for (int i = 0; i < 70; ++i) many.add(std::to_string(i));
  many.add("1");
  const json j = many.json();
  EXPECT_EQ(j["w"], 2);
  EXPECT_EQ(j["v"].get<std::string>().substr(0, 4), "AAAB");
  EXPECT_EQ(j["v"].get<std::string>().substr(138), "BFAB") << "69 and 1";
  IdColumn ids;
  for (const auto* id : {"kv/producer=a", "kv/producer=b", "caf\xc3\xa9/x", "caf\xc3\xa9/y"}) ids.add(id);
  EXPECT_EQ(ids.json(), json({"kv/producer=a", {12, "b"}, "caf\xc3\xa9/x", "caf\xc3\xa9/y"}))
      << "only ASCII is left out: the page counts otherwise";
}

}  // namespace
}  // namespace kvcts::report
