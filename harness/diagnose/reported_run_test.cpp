// A run that was not played here is named from what came where, as if it had been played.
#include "diagnose/reported_run.hpp"

#include <gtest/gtest.h>

#include "diagnose/testing/cases.hpp"
#include "scene/machine/recorder.hpp"

namespace kvcts::scenario {
namespace {

const Scenario& lowered() {
  static const Scenario scenario = testing_support::scenario_of("arrived/two-blocks");
  return scenario;
}

constexpr std::int64_t block = std::int64_t{4} * 2 * 32 * 2;

Explanation of(const Patch& patch) {
  const AddressSpace space(lowered());
  return explain(lowered(), space, {{patch}, {}}, 1);
}

BufferAddress in_c(std::int64_t offset) {
  BufferAddress address = AddressSpace(lowered()).address("C/kv.L0");
  address.offset += offset;
  return address;
}

TEST(ReportedRun, NamesABlockThatNeverArrived) {
  const Explanation found = of({in_c(5 * block), block, Patch::Is::before, in_c(5 * block)});
  EXPECT_TRUE(found.exact) << found.words;
  EXPECT_GT(found.tried, 0);
}

// No step moves what nothing had: a bit that flipped on the way.
TEST(ReportedRun, IgnoresContentThatNoMemoryHeld) {
  const Explanation found = of({in_c(5 * block), 1, Patch::Is::changed, {}, {4}});
  EXPECT_FALSE(found.exact) << found.words;
  EXPECT_EQ(found.tried, 0);
}

}  // namespace
}  // namespace kvcts::scenario
