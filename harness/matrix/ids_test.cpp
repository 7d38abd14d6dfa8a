#include "matrix/ids.hpp"

#include <gtest/gtest.h>

#include <set>

#include "case/catalogue/case_file.hpp"
#include "matrix/testing/committed.hpp"

namespace kvcts::matrix {
namespace {

using testing::committed;
using testing::error_of;

TEST(Ids, LeaveDefaultsOut) {
  Space space(committed());
  Point point = space.origin();
  at(point, AxisId::producer) = space.number(AxisId::producer, "vllm-fa-nhd");
  EXPECT_EQ(id_of(space, point), "kv/producer=vllm-fa-nhd");
  at(point, AxisId::consumer) = space.number(AxisId::consumer, "flashinfer-hnd");
  at(point, AxisId::dtype) = space.number(AxisId::dtype, "fp16");
  at(point, AxisId::engine) = space.number(AxisId::engine, "shm");
  EXPECT_EQ(id_of(space, point), "kv/producer=vllm-fa-nhd/consumer=flashinfer-hnd/dtype=fp16/engine=shm");
}

TEST(Ids, ParseInAnyOrderAndWithDefaults) {
  Space space(committed());
  const auto same = [&](const std::string& id) { return id_of(space, point_from_id(space, id)); };
  EXPECT_EQ(same("kv/engine=shm/producer=vllm-mla"), "kv/producer=vllm-mla/engine=shm");
  EXPECT_EQ(same("kv/producer=vllm-mla/dtype=bf16/pbs=geometry/consumer=same"), "kv/producer=vllm-mla");
  EXPECT_EQ(same("kv/producer=vllm-mla/consumer=vllm-mla"), "kv/producer=vllm-mla");
  EXPECT_EQ(same("kv/producer=vllm-mla/pbs=16/cbs=24"), "kv/producer=vllm-mla/cbs=24");  // small has blocks of 16
  EXPECT_EQ(same("kv/producer=vllm-mla/seed=77"), "kv/producer=vllm-mla/seed=77");
}

TEST(Ids, RoundTripOfRandomPoints) {
  Space space(committed());
  std::mt19937_64 random(5);
  std::set<std::string> seen;
  for (int i = 0; i < 20'000; ++i) {
    const Point point = testing::random_point(space, random);
    const std::string id = id_of(space, point);
    ASSERT_EQ(point_from_id(space, id), point) << id;
    ASSERT_EQ(id_of(space, point_from_id(space, id)), id);
    seen.insert(id);
  }
  EXPECT_GT(seen.size(), 19'900u);  // different points, different ids
}

TEST(Ids, RefuseMalformedIds) {
  Space space(committed());
  const std::pair<std::string, std::string> table[]{
      {"kv/producer=vllm-fa-ndh", "expected a value of axis 'producer', found 'vllm-fa-ndh'; did you mean 'vllm-fa-nhd'?"},
      {"kv/prodcer=vllm-mla", "expected the name of an axis, found 'prodcer'; did you mean 'producer'?"},
      {"kv/producer=vllm-mla/producer=vllm-mla", "expected each axis once, found 'producer' twice"},
      {"kv/dtype=bf16", "expected 'producer=...', which has no default, found none"},
      {"kv/producer", "expected axis=value between slashes, found 'producer'"},
      {"kv/producer=vllm-mla/", "expected axis=value between slashes, found ''"},
      {"kv/producer=vllm-mla/pbs=0", "expected a value of axis 'pbs', found '0'; write an integer from 1 to 1048576"},
      {"kv/producer=vllm-mla/pbs=08", "found '08'"},
      {"kv/producer=vllm-mla/ptp=-1", "found '-1'"},
      {"kv/producer=vllm-mla/seed=99999999999999999999999", "found '99999999999999999999999'"},
      {"vk/producer=vllm-mla", "expected an id that starts with 'kv/'"},
  };
  for (const auto& [id, expected] : table) {
    const std::string error = error_of([&] { point_from_id(space, id); });
    EXPECT_NE(error.find(expected), std::string::npos) << id << ": " << error;
  }
}

TEST(Ids, DamagedIdsParseOrGiveOneError) {
  Space space(committed());
  std::mt19937_64 random(9);
  int errors = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string id = id_of(space, testing::random_point(space, random));
    for (auto edits = 1 + random() % 3; edits > 0; --edits) {
      const auto at_byte = random() % id.size();
      random() % 2 ? id.erase(at_byte, 1) : id.insert(at_byte, 1, static_cast<char>(random() % 256));
    }
    try {
      const std::string again = id_of(space, point_from_id(space, id));
      ASSERT_EQ(id_of(space, point_from_id(space, again)), again);
    } catch (const Error& error) {
      ++errors;
      ASSERT_TRUE(std::string(error.what()).starts_with("case id '")) << error.what();
    }
  }
  EXPECT_GT(errors, 3000);
}

TEST(Ids, SetTheFieldsOfTheCase) {
  Space space(committed());
  const CaseSpec spec = spec_from_id(space,
                                     "kv/producer=vllm-fa-nhd/consumer=sglang-mha/dtype=fp16/geometry=gqa-8/cbs=32/ptp=2/"
                                     "engine=shm/op=read/ids=reversed/arch=sm_90/misalign=64/seed=9");
  EXPECT_EQ(spec.producer.layout, "vllm-fa-nhd");
  EXPECT_EQ(spec.consumer.backend, "sglang-mha");
  EXPECT_EQ(spec.consumer.layout, "");
  EXPECT_EQ(spec.dtype, "fp16");
  EXPECT_EQ(spec.producer.block_size, 16);
  EXPECT_EQ(spec.producer.blocks, 7);
  EXPECT_EQ(spec.consumer.block_size, 32);
  EXPECT_EQ(spec.consumer.blocks, 4);  // 7 * 16 tokens, and 40 tokens with two blocks to spare
  EXPECT_EQ(spec.producer.tp, 2);
  EXPECT_EQ(spec.engine, "shm");
  EXPECT_EQ(spec.op, Direction::read);
  EXPECT_EQ(spec.ids, "reversed");
  EXPECT_EQ(spec.arch, "sm_90");
  EXPECT_EQ(spec.misalign, 64);
  EXPECT_EQ(spec.seed, 9u);
  const CaseSpec like = spec_from_id(space, "kv/producer=sglang-mha");
  EXPECT_EQ(like.consumer.backend, "sglang-mha");
}

// A point of the matrix, written as a case file, is the same case: one schema, one parser.
TEST(Ids, RoundTripThroughACaseFile) {
  Space space(committed());
  std::mt19937_64 random(21);
  for (int i = 0; i < 500; ++i) {
    CaseSpec spec = spec_of(space, testing::random_point(space, random));
    spec.id = "a/point";
    const CaseSpec again = catalogue::parse_cases(catalogue::to_yaml(spec), "f.yaml", &committed()).at(0);
    CaseSpec expected = spec;
    expected.expected = {Expected{}};
    ASSERT_EQ(catalogue::to_document(again), catalogue::to_document(expected)) << catalogue::to_yaml(spec);
    ASSERT_EQ(again.consumer.tp, spec.consumer.tp);
    ASSERT_EQ(again.consumer.block_size, spec.consumer.block_size);
  }
}

}  // namespace
}  // namespace kvcts::matrix
