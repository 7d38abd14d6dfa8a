// Triage of invented runs: points of the matrix fail by a rule that the test knows and the search must find.
#include "tools/triage/triage.hpp"
#include "testing/checkout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "matrix/ids.hpp"
#include "matrix/select.hpp"

namespace kvcts::triage {
namespace {

using matrix::Point;
using matrix::Space;

const catalogue::Catalogue& catalogue() {
  static const catalogue::Catalogue instance(checkout::source() + "/cases");
  return instance;
}
Space& space() {
  static Space instance(catalogue());
  return instance;
}
matrix::Constraints& constraints() {
  static matrix::Constraints instance(space());
  return instance;
}

/// Runnable points of some axes' values, each failing where `rule` holds.
std::vector<Observation> points(
    const std::vector<std::pair<std::string, std::vector<std::string>>>& axes, const std::string& rule,
    const std::function<bool(std::size_t)>& keep = [](std::size_t) { return true; }) {
  std::vector<Point> all{space().origin()};
  for (const auto& [name, values] : axes) {
    std::vector<Point> next;
    for (const Point& p : all) {
      for (const std::string& value : values) {
        Point q = p;
        const auto& axis = *matrix::find_axis(name);
        at(q, axis.id) = space().number(axis.id, value);
        next.push_back(space().canonical(q));
      }
    }
    all = std::move(next);
  }
  const matrix::Expression fails(rule, space());
  std::vector<Observation> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (constraints().check(all[i]) != 0 || !keep(i)) continue;
    out.push_back({matrix::id_of(space(), all[i]), matrix::axes_of(space(), all[i]), fails(all[i])});
  }
  return out;
}

const std::vector<std::pair<std::string, std::vector<std::string>>> wide{
    {"producer", {"vllm-fa-nhd", "vllm-fa-hnd", "flashinfer-nhd", "flashinfer-hnd", "vllm-lbnhc"}},
    {"consumer", {"vllm-fa-nhd", "vllm-fa-hnd", "flashinfer-nhd", "flashinfer-hnd"}},
    {"dtype", {"bf16", "fp16", "fp8_e4m3", "fp8_e5m2"}},
    {"geometry", {"small", "tiny", "gqa-8", "d40", "d80", "d96"}},
    {"engine", {"memcpy", "shm"}}};

/// The ids of the failures that the parts explain together; no passing case may match.
void expect_right(const Finding& finding, const std::vector<Observation>& observations) {
  for (const Observation& o : observations) {
    bool holds = false;
    for (const Explanation& e : finding.parts) {
      holds = holds || matrix::Expression(e.rule.expression(), space()).evaluate(matrix::lookup_of(space(), o.axes), o.id);
    }
    EXPECT_EQ(holds, o.fails) << o.id;
  }
}

TEST(Triage, FindsTheConjunctionThatTheIssueAsksFor) {
  const auto observations = points(wide, "dtype == fp8_e4m3 && consumer.hnd && geometry.head_dim % 32 != 0");
  ASSERT_GT(observations.size(), 400u);
  const Finding finding = explain(observations, space());
  ASSERT_EQ(finding.parts.size(), 1u);
  EXPECT_TRUE(finding.unexplained.empty());
  EXPECT_EQ(finding.parts[0].rule.literals.size(), 3u) << finding.parts[0].rule.expression();
  EXPECT_EQ(static_cast<std::int64_t>(finding.parts[0].failures.size()), finding.failures);
  EXPECT_TRUE(finding.parts[0].against.empty());
  expect_right(finding, observations);
  // Among equivalent literals, the plainest text.
  EXPECT_NE(finding.parts[0].rule.expression().find("dtype == fp8_e4m3"), std::string::npos)
      << finding.parts[0].rule.expression();
  EXPECT_NE(finding.parts[0].rule.expression().find("consumer.hnd"), std::string::npos)
      << finding.parts[0].rule.expression();
}

TEST(Triage, OneLiteralWhereOneIsEnough) {
  for (const char* rule : {"engine == shm", "producer.inner != consumer.inner", "geometry.heads >= 8", "dtype.bits == 8"}) {
    const auto observations = points(wide, rule);
    const Finding finding = explain(observations, space());
    ASSERT_EQ(finding.parts.size(), 1u) << rule;
    EXPECT_EQ(finding.parts[0].rule.literals.size(), 1u) << rule << ": " << finding.parts[0].rule.expression();
    expect_right(finding, observations);
  }
}

TEST(Triage, TwoCausesAreTwoRules) {
  const auto observations = points(wide, "(dtype == fp16 && engine == shm) || (producer == vllm-lbnhc && geometry == tiny)");
  const Finding finding = explain(observations, space());
  ASSERT_EQ(finding.parts.size(), 2u);
  EXPECT_GE(finding.parts[0].failures.size(), finding.parts[1].failures.size());
  EXPECT_TRUE(finding.unexplained.empty());
  expect_right(finding, observations);
}

TEST(Triage, ACaseOrTwoAgainstARuleAreCounterExamplesNotANewRule) {
  auto observations = points(wide, "dtype == fp16");
  auto lucky = std::find_if(observations.begin() + 40, observations.end(), [](const Observation& o) { return o.fails; });
  lucky->fails = false;
  const Finding finding = explain(observations, space());
  ASSERT_EQ(finding.parts.size(), 1u);
  EXPECT_EQ(finding.parts[0].rule.expression(), "dtype == fp16");
  EXPECT_EQ(finding.parts[0].against, std::vector<std::string>{lucky->id});
}

TEST(Triage, WhatNoAxisTellsIsUnexplained) {
  std::vector<Observation> observations = points(wide, "engine == shm && dtype == bf16 && geometry == tiny");
  for (std::size_t i = 0; i < 6; ++i) {  // hand-written cases with equal descriptions that end differently
    observations.push_back({"mine/" + std::to_string(i), {{"dtype", "int8"}, {"engine", "memcpy"}}, i % 2 == 0});
  }
  const Finding finding = explain(observations, space());
  EXPECT_EQ(finding.unexplained, (std::vector<std::string>{"mine/0", "mine/2", "mine/4"}));
  ASSERT_EQ(finding.parts.size(), 1u);
  EXPECT_EQ(finding.parts[0].rule.literals.size(), 3u) << finding.parts[0].rule.expression();
  EXPECT_TRUE(explain(points(wide, "engine == shm && engine == memcpy"), space()).parts.empty());
}

TEST(Triage, RefutersTakeOneLiteralAwayOrChangeSomethingElse) {
  const auto observations = points(wide, "dtype == fp8_e4m3 && consumer.hnd", [](std::size_t i) { return i % 3 == 0; });
  const Finding finding = explain(observations, space());
  ASSERT_EQ(finding.parts.size(), 1u);
  const auto tries = refuters(finding.parts[0], observations, space(), constraints(), 40);
  ASSERT_EQ(tries.size(), 40u);
  const matrix::Expression rule(finding.parts[0].rule.expression(), space());
  std::set<std::string> whys, ids;
  for (const Refuter& r : tries) {
    const Point point = matrix::point_from_id(space(), r.id);
    EXPECT_EQ(rule(point), r.fails) << r.id;
    EXPECT_EQ(constraints().check(point), 0) << r.id;
    EXPECT_TRUE(std::none_of(observations.begin(), observations.end(), [&](const Observation& o) { return o.id == r.id; }))
        << r.id;
    EXPECT_TRUE(ids.insert(r.id).second) << r.id;
    whys.insert(r.fails ? "elsewhere" : r.why);
  }
  EXPECT_EQ(whys.size(), 3u) << "each literal is taken away, and something else is changed";
}

TEST(Triage, ARuleThatIsTooNarrowIsRefutedByItsOwnTries) {
  // All observed failures have dtype fp16; in truth every 16-bit type fails.
  const auto observations =
      points({{"producer", {"vllm-fa-nhd", "vllm-fa-hnd"}}, {"dtype", {"fp16", "fp8_e4m3"}}, {"engine", {"memcpy", "shm"}}},
             "dtype.bits == 16");
  const Finding finding = explain(observations, space());
  ASSERT_EQ(finding.parts.size(), 1u);
  EXPECT_EQ(finding.parts[0].rule.expression(), "dtype == fp16");
  EXPECT_FALSE(finding.parts[0].as_good.empty());
  const matrix::Expression truth("dtype.bits == 16", space());
  auto learnt = observations;
  std::size_t against = 0;
  for (const Refuter& r : refuters(finding.parts[0], observations, space(), constraints(), 24)) {
    const Point point = matrix::point_from_id(space(), r.id);
    against += truth(point) != r.fails;
    learnt.push_back({r.id, matrix::axes_of(space(), point), truth(point)});
  }
  EXPECT_GT(against, 0u);
  expect_right(explain(learnt, space()), learnt);
}

TEST(Triage, TenThousandCasesTakeSeconds) {
  auto axes = wide;
  axes.push_back({"pbs", {"16", "32", "64", "8"}});
  axes.push_back({"ids", {"shuffled", "identity", "reversed"}});
  axes.push_back({"op", {"write", "read"}});
  const auto observations = points(axes, "dtype == fp8_e4m3 && pbs > cbs && op == read");
  ASSERT_GT(observations.size(), 8000u);
  const Finding finding = explain(observations, space());
  ASSERT_EQ(finding.parts.size(), 1u);
  EXPECT_EQ(finding.parts[0].rule.literals.size(), 3u) << finding.parts[0].rule.expression();
  expect_right(finding, observations);
}

TEST(Triage, TheBoundIsThatOfTheBinomial) {
  EXPECT_EQ(lower_bound(0), 0);
  EXPECT_NEAR(lower_bound(1), 0.05, 1e-9);
  EXPECT_NEAR(lower_bound(24), 0.8827, 1e-3);  // 0.8827^24 = 0.05
}

}  // namespace
}  // namespace kvcts::triage
