#include "matrix/waivers.hpp"

#include <gtest/gtest.h>

#include "matrix/testing/committed.hpp"

namespace kvcts::matrix {
namespace {

using testing::Folder;

CaseResult result(const std::string& id, Outcome outcome, FaultClass fault_class = FaultClass::none,
                  Phase phase = Phase::compare) {
  CaseResult r;
  r.id = id, r.outcome = outcome, r.diagnosis.fault_class = fault_class, r.phase = phase;
  return r;
}

class WaiverTest : public ::testing::Test {
 protected:
  WaiverTest() {
    folder_.write(
        "waivers/w.yaml",
        "waiver: by-id\nmatch: {id: \"kv/*engine=shm*\", class: axis-permuted}\nreason: known\nowner: me\nlink: "
        "x#1\nexpires: 2027-01-31\n---\n"
        "waiver: by-axes\nmatch: {where: arch < sm_80 && dtype == fp16, outcome: HANG}\nreason: hangs\nowner: me\nlink: "
        "x#2\nexpires: 2027-06-30\n---\n"
        "waiver: by-class\nmatch: {class: stale-block}\nreason: stale\nowner: you\nlink: x#3\nexpires: 2027-06-30\n");
  }
  Ruling judge(const CaseResult& r, const std::vector<Expected>& expected, const char* day = "2026-12-01") {
    return Waivers(space_).judge(r, expected, day);
  }
  Folder folder_;
  Catalogue catalogue_{folder_.path()};
  Space space_{catalogue_};
};

const std::string shm = "kv/producer=vllm-mla/engine=shm";
const std::string other = "kv/producer=vllm-mla";

TEST_F(WaiverTest, JudgesByTheExpectationWithoutAWaiver) {
  EXPECT_EQ(judge(result(other, Outcome::pass), {}).verdict, Verdict::as_expected);
  const auto ruling = judge(result(other, Outcome::fail, FaultClass::wrong_stride), {});
  EXPECT_EQ(ruling.verdict, Verdict::unexpected);
  EXPECT_EQ(ruling.reason, "expected PASS, got FAIL wrong-stride in compare");
  EXPECT_EQ(judge(result(other, Outcome::fail, FaultClass::wrong_stride),
                  {Expected{Outcome::fail, FaultClass::wrong_stride, Phase::compare, ""}})
                .verdict,
            Verdict::as_expected);
  EXPECT_EQ(judge(result(other, Outcome::fail, FaultClass::wrong_stride),
                  {Expected{Outcome::fail, FaultClass::axis_permuted, {}, ""}})
                .verdict,
            Verdict::unexpected);
  EXPECT_EQ(judge(result(other, Outcome::hang),
                  {Expected{Outcome::fail, FaultClass::none, {}, ""}, Expected{Outcome::hang, FaultClass::none, {}, ""}})
                .verdict,
            Verdict::as_expected);
}

TEST_F(WaiverTest, KnownFailureIsXfailUntilItsLastDay) {
  const auto failed = result(shm, Outcome::fail, FaultClass::axis_permuted);
  EXPECT_EQ(judge(failed, {}).verdict, Verdict::xfail);
  EXPECT_EQ(judge(failed, {}).waiver, "by-id");
  EXPECT_EQ(judge(failed, {}, "2027-01-31").verdict, Verdict::xfail);
  EXPECT_EQ(judge(failed, {}, "2027-02-01").verdict, Verdict::expired_waiver);
  EXPECT_EQ(judge(result(shm, Outcome::fail, FaultClass::wrong_stride), {}).verdict, Verdict::unexpected);  // another defect
  EXPECT_EQ(judge(result(other, Outcome::fail, FaultClass::axis_permuted), {}).verdict, Verdict::unexpected);
}

TEST_F(WaiverTest, WaivedCaseThatEndsAsExpectedIsXpass) {
  EXPECT_EQ(judge(result(shm, Outcome::pass), {}).verdict, Verdict::xpass);
  EXPECT_EQ(judge(result(shm, Outcome::pass), {}, "2027-02-01").verdict,
            Verdict::as_expected);                                                   // nothing is waived any more
  EXPECT_EQ(judge(result(other, Outcome::pass), {}).verdict, Verdict::as_expected);  // by class alone: not about this case
}

TEST_F(WaiverTest, MatchesByAxesAndByClass) {
  const std::string turing = "kv/producer=vllm-mla/dtype=fp16/arch=sm_75";
  EXPECT_EQ(judge(result(turing, Outcome::hang), {}).verdict, Verdict::xfail);
  EXPECT_EQ(judge(result(turing, Outcome::fail), {}).verdict, Verdict::unexpected);
  EXPECT_EQ(judge(result("kv/producer=vllm-mla/dtype=fp16", Outcome::hang), {}).verdict, Verdict::unexpected);
  EXPECT_EQ(judge(result(other, Outcome::fail, FaultClass::stale_block), {}).waiver, "by-class");
  // A hand-written case has its axes in its facts.
  CaseResult written = result("seeds/t4", Outcome::hang);
  EXPECT_EQ(judge(written, {}).verdict, Verdict::unexpected);
  written.facts = {{"axes", {{"arch", "sm_75"}, {"dtype", "fp16"}}}};
  EXPECT_EQ(judge(written, {}).verdict, Verdict::xfail);
}

TEST_F(WaiverTest, IgnoresOutcomesThatAreNoFailure) {
  EXPECT_EQ(judge(result(shm, Outcome::skipped), {}).verdict, Verdict::skipped);
  EXPECT_EQ(judge(result(shm, Outcome::not_run), {}).verdict, Verdict::not_run);
  EXPECT_EQ(judge(result(shm, Outcome::error), {}).verdict, Verdict::error);
  EXPECT_EQ(judge(result(shm, Outcome::unsupported), {}).verdict, Verdict::as_expected);
}

TEST(Waivers, TodayIsADate) {
  const std::string day = today();
  ASSERT_EQ(day.size(), 10u);
  EXPECT_GT(day, "2025-01-01");
}

}  // namespace
}  // namespace kvcts::matrix
