// One case for each class of fault (cases/faults): caught, named, and its control passes. KVCTS_SHOW=1 prints the diagnoses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_script.hpp"
#include "diagnose/run.hpp"
#include "testing/checkout.hpp"

namespace kvcts {
namespace {

class FaultCases : public testing::TestWithParam<std::string> {};

TEST_P(FaultCases, EachEndsAsDeclared) {
  const catalogue::Catalogue catalogue(std::filesystem::path(checkout::source()) / "cases");
  const char* only = std::getenv("KVCTS_ONLY");
  for (const CaseSpec& spec : catalogue::read_case_file(GetParam(), "", &catalogue)) {
    if (spec.script.empty() || (only && spec.id.find(only) == std::string::npos)) continue;
    SCOPED_TRACE(spec.id);
    Report report;
    try {
      report = script::run_script(resolve_script(spec, catalogue), spec.seed);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    const FaultClass fault_class = report.diagnosis.fault_class;
    const std::string ending = fmt::format("{} {}: {}", name(report.outcome), name(fault_class), report.message);
    bool matches = false;
    for (const Expected& e : spec.expected) {
      matches =
          matches || (report.outcome == e.outcome && (e.fault_class == FaultClass::none || e.fault_class == fault_class));
    }
    if (std::getenv("KVCTS_SHOW")) {
      std::cout << spec.id << ": " << ending << " | tried " << report.tried << ", " << report.diagnose_ns / 1000000
                << " ms, compare " << report.compare_ns / 1000000 << " ms\n";
      for (const Cause& other : report.diagnosis.causes) std::cout << "      also " << in_words(other) << "\n";
    }
    EXPECT_TRUE(matches) << ending;
  }
}

std::vector<std::string> files() {
  std::vector<std::string> out;
  const char* folder = std::getenv("KVCTS_FAULTS");
  const auto root = folder ? std::filesystem::path(folder) : std::filesystem::path(checkout::source()) / "cases/faults";
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.path().extension() == ".yaml") out.push_back(entry.path().string());
  }
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
