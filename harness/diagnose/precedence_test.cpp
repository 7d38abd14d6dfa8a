// The table of precedence names every class that a generator proposes.
#include "diagnose/precedence.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_scenario.hpp"
#include "diagnose/run.hpp"
#include "testing/checkout.hpp"

namespace kvcts::scenario {
namespace {

TEST(Precedence, ListsEveryClassThatAGeneratorProposes) {
  const std::filesystem::path root = std::filesystem::path(checkout::source()) / "cases";
  const catalogue::Catalogue catalogue(root);
  Proposals proposals;
  for (const auto& file : std::filesystem::directory_iterator(root / "faults")) {
    for (const CaseSpec& spec : catalogue::read_case_file(file.path(), "", &catalogue))
      if (spec.id.find('#') == std::string::npos) run_scenario(resolve_scenario(spec, catalogue), spec.seed);
  }
  EXPECT_GT(proposals.all().size(), 20U);
  for (const GeneratorCost& generator : generator_costs()) {
    const auto seen = proposals.all().find(generator.name);
    if (generator.classes.empty() || seen == proposals.all().end()) continue;
    for (const FaultClass one : seen->second)
      EXPECT_TRUE(std::ranges::find(generator.classes, one) != generator.classes.end()) << generator.name << ": " << one;
  }
}

}  // namespace
}  // namespace kvcts::scenario
