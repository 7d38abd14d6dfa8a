// Cases for tests only: cases/ has those that end as they say (faults_test), scripts/ those that a test asks more about.
#pragma once

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_scenario.hpp"
#include "case/result.hpp"
#include "testing/checkout.hpp"

namespace kvcts::testing_support {

/// "memory/two-mib#scales" is in scripts/memory.yaml.
inline CaseSpec case_of(const std::string& id) {
  const std::filesystem::path source = checkout::source();
  static const catalogue::Catalogue catalogue(source / "cases");
  const std::string file = id.substr(0, id.find('/')) + ".yaml";
  for (const CaseSpec& spec :
       catalogue::read_case_file(source / "harness/diagnose/testing/scenarios" / file, file, &catalogue))
    if (spec.id == id) return spec;
  throw std::runtime_error("no case " + id + " in " + file);
}

inline scenario::Scenario scenario_of(const std::string& id) {
  static const catalogue::Catalogue catalogue(std::filesystem::path(checkout::source()) / "cases");
  return resolve_scenario(case_of(id), catalogue);
}

/// Whether it is one of the outcomes that the case says.
inline bool as_expected(const CaseSpec& spec, const Report& report) {
  return std::ranges::any_of(spec.expected, [&](const Expected& e) {
    return report.outcome == e.outcome &&
           (e.fault_class == FaultClass::none || e.fault_class == report.diagnosis.fault_class) &&
           report.message.find(e.contains) != std::string::npos;
  });
}

}  // namespace kvcts::testing_support
