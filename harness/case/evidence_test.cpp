#include "case/evidence.hpp"

#include <gtest/gtest.h>

namespace kvcts {
namespace {

const nlohmann::json claim{{"device_evidence", "executed"}, {"arch", "sm_90"}};
const auto devices(std::vector<std::string> found) {
  return [found] { return found; };
}

TEST(Evidence, AClaimWithoutADeviceIsModelled) {
  EXPECT_EQ(evidence_of(claim, "sm_90", {}), Evidence::modelled);
  EXPECT_EQ(evidence_of(claim, "sm_90", devices({})), Evidence::modelled);
  EXPECT_EQ(evidence_of(claim, "sm_90", devices({"sm_80"})), Evidence::modelled);
}

TEST(Evidence, AClaimOfADetectedDeviceIsExecuted) {
  EXPECT_EQ(evidence_of(claim, "sm_90", devices({"sm_80", "sm_90"})), Evidence::executed);
  EXPECT_EQ(evidence_of(claim, "cpu", devices({"sm_90"})), Evidence::executed);
  EXPECT_EQ(evidence_of(claim, "sm_80", devices({"sm_80", "sm_90"})), Evidence::modelled)
      << "another architecture than the case asks for";
}

TEST(Evidence, DetectsDevicesOnlyIfOneIsClaimed) {
  const auto nobody = []() -> std::vector<std::string> { throw std::logic_error("asked"); };
  EXPECT_EQ(evidence_of(nlohmann::json::object(), "sm_90", nobody), Evidence::modelled);
  EXPECT_EQ(evidence_of({{"device_evidence", "modelled"}, {"arch", "sm_90"}}, "sm_90", nobody), Evidence::modelled);
}

TEST(Evidence, ClaimsOfAnyShapeAreHarmless) {
  for (const auto& odd : {nlohmann::json(), nlohmann::json("executed"), nlohmann::json{{"device_evidence", 1}},
                          nlohmann::json{{"device_evidence", "executed"}, {"arch", 90}}}) {
    EXPECT_EQ(evidence_of(odd, "sm_90", devices({"sm_90"})), Evidence::modelled);
  }
}

}  // namespace
}  // namespace kvcts
