// The diagnosis never sees what a case says about itself: without their name, title, links and expected outcome, or with
// those of another case, cases are diagnosed word for word as before.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_scenario.hpp"
#include "diagnose/run.hpp"
#include "testing/checkout.hpp"

namespace kvcts {
namespace {

const std::filesystem::path cases = std::filesystem::path(checkout::source()) / "cases";
const std::vector<std::string> labels{"case", "title", "expected", "links", "notes", "controls"};

std::string text_of(const YAML::Node& document) {
  YAML::Emitter out;
  out << document;
  return out.c_str();
}

// Documents of a file that are scripted.
std::vector<YAML::Node> documents(const std::string& file) {
  std::vector<YAML::Node> out;
  for (YAML::Node& node : YAML::LoadAllFromFile((cases / file).string())) {
    if (node.IsMap() && node["steps"]) out.push_back(node);
  }
  return out;
}

nlohmann::json diagnosed(const YAML::Node& document, const catalogue::Catalogue& catalogue) {
  const CaseSpec spec = catalogue::parse_cases(text_of(document), "blind", &catalogue).at(0);
  Report report = scenario::run_scenario(resolve_scenario(spec, catalogue), 1);
  report.compare_ns = report.diagnose_ns = 0;
  return to_json(report);
}

YAML::Node with_labels_of(const YAML::Node& document, const YAML::Node& other) {
  YAML::Node out = YAML::Clone(document);
  for (const std::string& label : labels) {
    out.remove(label);
    if (other[label] && label != "controls") out[label] = YAML::Clone(other[label]);
  }
  if (!out["case"]) out["case"] = "blind/nameless";
  return out;
}

class Blind : public testing::TestWithParam<std::string> {};

TEST_P(Blind, DiagnosisIgnoresIdTitleAndExpectation) {
  const catalogue::Catalogue catalogue(cases);
  const std::vector<YAML::Node> all = documents(GetParam());
  ASSERT_GE(all.size(), 2u);
  int failures = 0;
  for (std::size_t i = 0; i < all.size() && i < 8; ++i) {
    const nlohmann::json reported = diagnosed(all[i], catalogue);
    failures += reported["outcome"] != "PASS";
    YAML::Node nothing;
    EXPECT_EQ(diagnosed(with_labels_of(all[i], nothing), catalogue), reported) << "stripped: " << all[i]["case"];
    EXPECT_EQ(diagnosed(with_labels_of(all[i], all[(i + 1) % all.size()]), catalogue), reported)
        << "labels of another one: " << all[i]["case"];
  }
  EXPECT_GT(failures, 0);
}

INSTANTIATE_TEST_SUITE_P(Files, Blind,
                         testing::Values("faults/layout.yaml", "faults/content.yaml", "museum/vllm-1.yaml",
                                         "museum/sglang-1.yaml", "museum/mooncake-2.yaml"),
                         [](const auto& file) {
                           std::string name = std::filesystem::path(file.param).string();
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace kvcts
