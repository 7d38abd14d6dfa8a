#include "case/resolve/block_ids.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "case/spec.hpp"

namespace kvcts {
namespace {

using Ids = std::vector<std::int64_t>;

Ids taken(const std::string& rule, bool producer, std::int64_t blocks, std::int64_t count) {
  return BlockIds(rule, producer, blocks, 7, {}).take(count, "a side");
}

bool contiguous(const Ids& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), [](auto a, auto b) { return b != a + 1; }) == ids.end();
}

TEST(BlockIds, GatherAndScatterKeepOneSideContiguous) {
  for (const std::int64_t count : {3, 17, 64}) {
    EXPECT_FALSE(contiguous(taken("gather", true, count + 4, count)));
    EXPECT_TRUE(contiguous(taken("gather", false, count + 4, count)));
    EXPECT_TRUE(contiguous(taken("scatter", true, count + 4, count)));
    EXPECT_FALSE(contiguous(taken("scatter", false, count + 4, count)));
  }
}

TEST(BlockIds, GapsUseEvenIdsOnOneSideAndOddOnTheOther) {
  EXPECT_EQ(taken("gaps", true, 7, 5), (Ids{0, 2, 4, 6, 1}));
  EXPECT_EQ(taken("gaps", false, 7, 5), (Ids{1, 3, 5, 0, 2}));
}

TEST(BlockIds, EdgesIncludeTheFirstAndTheLastBlock) {
  EXPECT_EQ(taken("edges", true, 7, 4), (Ids{6, 0, 5, 1}));
  EXPECT_EQ(taken("edges", false, 7, 4), (Ids{0, 6, 1, 5}));
}

TEST(BlockIds, EveryRuleTakesEachBlockOnceInPoolsOfAnySize) {
  for (const std::string& rule : block_id_rules) {
    for (const bool producer : {true, false}) {
      Ids all = taken(rule, producer, 65, 65);
      std::sort(all.begin(), all.end());
      EXPECT_TRUE(contiguous(all) && all.front() == 0) << rule;
      Ids some = taken(rule, producer, std::int64_t{1} << 40, 64);
      std::sort(some.begin(), some.end());
      EXPECT_EQ(std::adjacent_find(some.begin(), some.end()), some.end()) << rule;
      EXPECT_TRUE(some.front() >= 0 && some.back() < std::int64_t{1} << 40) << rule;
    }
  }
}

}  // namespace
}  // namespace kvcts
