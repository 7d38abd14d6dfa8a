#include "run/supervisor/checkers.hpp"

#include <gtest/gtest.h>

namespace kvcts::supervisor {
namespace {

Report right(std::int64_t checked) {
  Report out;
  out.outcome = Outcome::pass;
  out.checked_bytes = checked;
  return out;
}

Report wrong(std::int64_t checked, const std::string& words, FaultClass fault) {
  Report out = right(checked);
  out.outcome = Outcome::fail;
  out.wrong_bytes = 7;
  out.message = words;
  out.diagnosis.fault_class = fault;
  out.first_wrong.push_back({words, 0, "", "", ""});
  return out;
}

TEST(Checkers, PassACaseIfBothSidesPass) {
  const Report both = together(right(100), right(200));
  EXPECT_EQ(both.outcome, Outcome::pass);
  EXPECT_EQ(both.checked_bytes, 300);
  EXPECT_EQ(both.message, "");
}

TEST(Checkers, BlameTheProducerIfOnlyItIsWrong) {
  Report producer = wrong(100, "source changed", FaultClass::stale_block);
  producer.source_changed = true;
  producer.digests.producer.after = "abc";
  const Report both = together(producer, right(200));
  EXPECT_EQ(both.outcome, Outcome::fail);
  EXPECT_TRUE(both.source_changed);
  EXPECT_EQ(both.wrong_bytes, 7);
  EXPECT_EQ(both.diagnosis.fault_class, FaultClass::stale_block);
  EXPECT_EQ(both.message, "on the producer's host: source changed");
  EXPECT_EQ(both.digests.producer.after, "abc");
}

TEST(Checkers, PutTheCauseOfTheConsumerFirst) {
  const Report both =
      together(wrong(100, "source changed", FaultClass::stale_block), wrong(200, "permuted", FaultClass::axis_permuted));
  EXPECT_EQ(both.diagnosis.fault_class, FaultClass::axis_permuted);
  EXPECT_EQ(both.message, "permuted; on the producer's host: source changed");
  EXPECT_EQ(both.first_wrong.size(), 2U);
}

TEST(Checkers, MergeLateWritesOfBothHosts) {
  EXPECT_FALSE(together(LateWrite{}, LateWrite{}).changed);
  EXPECT_EQ(together(LateWrite{true, 3, "p"}, LateWrite{}).message, "p");
  EXPECT_EQ(together(LateWrite{}, LateWrite{true, 3, "c"}).message, "c");
  EXPECT_EQ(together(LateWrite{true, 3, "p"}, LateWrite{true, 4, "c"}).bytes, 7);
}

}  // namespace
}  // namespace kvcts::supervisor
