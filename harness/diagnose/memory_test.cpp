// Memory use of a scripted case: depends on what it touches, not on the size of its pools. Measured in a separate process.
#include <gtest/gtest.h>

#include "case/footprint.hpp"
#include "diagnose/run.hpp"
#include "diagnose/testing/cases.hpp"
#include "testing/peak.hpp"

namespace kvcts::scenario {
namespace {

using testing_support::as_expected, testing_support::case_of, testing_support::scenario_of;

constexpr double mib = 1 << 20;

/// Of a case that ends as it says; else negative.
double peak_of(const std::string& id) {
  const CaseSpec spec = case_of(id);
  const Scenario scenario = scenario_of(id);
  return testing_support::peak_of([&] { return as_expected(spec, run_scenario(scenario, 1)); });
}

TEST(Memory, APoolCostsOnlyTouchedPages) {
  const double right = peak_of("memory/two-blocks-of-a-large-pool#intended"),
               wrong = peak_of("memory/two-blocks-of-a-large-pool");
  EXPECT_GT(right, 0);
  EXPECT_GT(wrong, 0);
  EXPECT_LT(right, 150 * mib);
  EXPECT_LT(wrong, 600 * mib);
}

TEST(Memory, EstimateBoundsWhatARunUses) {
  for (const std::string size : {"memory/half-a-mib", "memory/two-mib"}) {
    for (const char* dtype : {"", "#scales", "#global-scales"}) {
      SCOPED_TRACE(size + dtype);
      const double peak = peak_of(size + dtype), reckoned = memory_needed(scenario_of(size + dtype));
      EXPECT_GT(peak, 0);
      EXPECT_LT(peak, reckoned);
      EXPECT_GT(peak, reckoned / 8);
    }
  }
}

TEST(Memory, ASearchBeyondTheLimitIsNotStarted) {
  const std::string id = "memory/search-that-would-not-fit";
  const double peak = peak_of(id);
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, memory_needed(scenario_of(id)));
}

}  // namespace
}  // namespace kvcts::scenario
