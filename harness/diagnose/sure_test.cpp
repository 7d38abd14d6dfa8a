// When a diagnosis is sure: one class alone explains all that was observed, and nothing about it is in doubt. Its cases:
// testing/cases/sure.yaml.
#include <gtest/gtest.h>

#include <string>

#include "case/result.hpp"

namespace kvcts::scenario {
namespace {

bool says(const Diagnosis& why, const std::string& words) { return why.text.find(words) != std::string::npos; }

const Cause stale{FaultClass::stale_block, "old"}, missing{FaultClass::layer_missing, "one layer"};

TEST(Sure, OnlyOneClassFits) {
  EXPECT_TRUE(kvcts::named({stale}, "").sure);
  EXPECT_TRUE(kvcts::named({stale, {FaultClass::stale_block, "in other words"}}, "").sure);
  EXPECT_FALSE(kvcts::named({stale, missing}, "").sure) << "another class explains as much, though it is less likely";
  Cause competing = missing;
  competing.competing = true;
  const Diagnosis two = kvcts::named({stale, competing}, "");
  EXPECT_FALSE(two.sure);
  EXPECT_TRUE(says(two, "the bytes cannot tell it from layer-missing: one layer"));
}

TEST(Sure, NamesTheCountOrReportThatDecides) {
  Cause other = missing;
  other.diagnosed_by = DiagnosedBy::count;
  const Diagnosis counted = kvcts::named({stale, other}, "");
  EXPECT_TRUE(counted.sure);
  EXPECT_TRUE(says(counted, "only the number of bytes moved tells it from layer-missing: one layer")) << counted.text;
  other.diagnosed_by = DiagnosedBy::events;
  EXPECT_TRUE(says(kvcts::named({stale, other}, ""), "only how it ended or what was reported tells it from"))
      << "no word of it";
}

TEST(Sure, ASureAnswerLeavesNothingOpen) {
  EXPECT_FALSE(kvcts::named({stale}, "", {.cut = true}).sure);
  EXPECT_FALSE(kvcts::named({stale}, "", {.other_count = true}).sure);
  const Diagnosis unknown = kvcts::named({stale}, "", {.undeclared = {64, 4096}});
  EXPECT_FALSE(unknown.sure);
  EXPECT_TRUE(says(unknown, "nothing declares 64, 4,096")) << unknown.text;
}

}  // namespace
}  // namespace kvcts::scenario
