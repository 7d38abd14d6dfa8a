// Cases that say how they end: one for each class of fault (cases/faults), and those of testing/cases. KVCTS_SHOW=1 prints
// what is said of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_scenario.hpp"
#include "diagnose/explain.hpp"
#include "diagnose/run.hpp"
#include "diagnose/testing/cases.hpp"
#include "scene/machine/recorder.hpp"
#include "testing/checkout.hpp"

namespace kvcts {
namespace {

/// Whether every byte and report is as intended; does not search for a cause.
bool right(const scenario::Scenario& scenario) {
  using namespace scenario;
  expect_playable(scenario);
  const AddressSpace space(scenario);
  SymbolTable symbols;
  const Truth truth = truth_of(without_faults(scenario), space, symbols);
  const Observation seen = observe(record(scenario, space, actual_sequence(scenario)), 1, 4);
  Expectation expectation(truth, space, symbols, 1);
  return !compare(seen, truth, expectation, space).any();
}

/// Of a case that only has to fail no cause is sought. ERROR: the scenario is refused.
Report executed(const CaseSpec& spec, const catalogue::Catalogue& catalogue) {
  Report report;
  try {
    const scenario::Scenario scenario = resolve_scenario(spec, catalogue);
    const Expected& e = spec.expected.at(0);
    if (e.outcome != Outcome::fail || e.fault_class != FaultClass::none || !e.contains.empty())
      return scenario::run_scenario(scenario, spec.seed);
    report.outcome = right(scenario) ? Outcome::pass : Outcome::fail;
  } catch (const std::exception& error) {
    report.outcome = Outcome::error;
    report.message = error.what();
  }
  return report;
}

class FaultCases : public testing::TestWithParam<std::string> {};

TEST_P(FaultCases, EndAsDeclared) {
  const catalogue::Catalogue catalogue(std::filesystem::path(checkout::source()) / "cases");
  const char* only = std::getenv("KVCTS_ONLY");
  for (const CaseSpec& spec : catalogue::read_case_file(GetParam(), "", &catalogue)) {
    if (spec.scenario.empty() || (only && spec.id.find(only) == std::string::npos)) continue;
    SCOPED_TRACE(spec.id);
    const Report report = executed(spec, catalogue);
    const FaultClass fault_class = report.diagnosis.fault_class;
    const std::string ending = fmt::format("{} {}: {}", name(report.outcome), name(fault_class), report.message);
    if (std::getenv("KVCTS_SHOW")) {
      std::cout << spec.id << ": " << ending << " | tried " << report.tried << ", " << report.diagnose_ns / 1000000
                << " ms, compare " << report.compare_ns / 1000000 << " ms\n";
      for (const Cause& other : report.diagnosis.causes) std::cout << "      also " << to_string(other) << "\n";
    }
    EXPECT_TRUE(testing_support::as_expected(spec, report)) << ending;
    EXPECT_TRUE(report.diagnosis.exact || fault_class == FaultClass::none) << ending;
    EXPECT_TRUE(report.diagnosis.sure || report.outcome == Outcome::pass || !GetParam().ends_with("/sure.yaml")) << ending;
  }
}

std::vector<std::string> files() {
  std::vector<std::string> out;
  const char* folder = std::getenv("KVCTS_FAULTS");
  const std::filesystem::path source = checkout::source();
  for (const auto& root : folder ? std::vector<std::filesystem::path>{folder}
                                 : std::vector{source / "cases/faults", source / "harness/diagnose/testing/cases"})
    for (const auto& entry : std::filesystem::directory_iterator(root))
      if (entry.path().extension() == ".yaml") out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, FaultCases, testing::ValuesIn(files()), [](const auto& file) {
  std::string name = std::filesystem::path(file.param).stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace kvcts
