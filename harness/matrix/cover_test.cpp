#include "matrix/cover.hpp"

#include <gtest/gtest.h>

#include <set>

#include "matrix/testing/committed.hpp"

namespace kvcts::matrix {
namespace {

using testing::committed;

using Values = std::set<std::pair<int, std::string>>;  // axis, text

// All t-subsets of a point's axis values, independent of cover.cpp. Only axes that the block varies.
void add_tuples(const Space& space, const Point& point, const std::vector<int>& varied, int t, std::set<Values>& out) {
  std::vector<std::pair<int, std::string>> values;
  for (const int a : varied) {
    const auto id = static_cast<AxisId>(a);
    values.emplace_back(
        a, id == AxisId::consumer && point[1] == 0 ? space.text(AxisId::producer, point[0]) : space.text(id, at(point, id)));
  }
  std::vector<std::size_t> pick;
  const std::function<void(std::size_t)> choose = [&](std::size_t from) {
    if (pick.size() == static_cast<std::size_t>(t)) {
      Values one;
      for (const auto i : pick) one.insert(values[i]);
      out.insert(one);
      return;
    }
    for (std::size_t i = from; i < values.size(); ++i) {
      pick.push_back(i);
      choose(i + 1);
      pick.pop_back();
    }
  };
  choose(0);
}

catalogue::MatrixBlock block() {
  catalogue::MatrixBlock b;
  b.title = "test";
  // No value has two names ("geometry" and 16), so texts are tuples.
  b.axes = {{"producer",
             {"vllm-fa-nhd", "vllm-fa-hnd", "vllm-xformers", "vllm-mla", "flashinfer-nvfp4-hnd", "vllm-flash-attn-0.22"}},
            {"consumer", {"vllm-fa-nhd", "flashinfer-hnd-separate", "sglang-mla", "vllm-flash-attn-0.22"}},
            {"dtype", {"bf16", "fp8_e4m3", "nvfp4"}},
            {"geometry", {"gqa-8", "gqa-3", "mla-576", "d40"}},
            {"ptp", {"1", "2"}},
            {"engine", {"memcpy", "shm"}},
            {"arch", {"cpu", "sm_75", "sm_90", "sm_100"}}};
  b.where = "!(engine == shm && ptp == 2)";
  return b;
}

class CoverTest : public ::testing::TestWithParam<int> {};

TEST_P(CoverTest, CoversExactlyTheTuplesThatCanRun) {
  const int t = GetParam();
  Space space(committed());
  Constraints constraints(space);
  const Block resolved = resolve_block(space, block(), "test");
  const std::vector<int> varied{0, 1, 2, 3, 6, 9, 12};

  std::set<Values> possible, in_suite;
  std::vector<Point> points;
  std::vector<int> constraint;
  each_point(space, constraints, resolved, [&](const Point& point, int stopped) {
    points.push_back(point), constraint.push_back(stopped);
    add_tuples(space, point, varied, t, in_suite);
    if (stopped == 0) add_tuples(space, point, varied, t, possible);
  });
  ASSERT_GT(possible.size(), 20u);
  ASSERT_GE(in_suite.size(), possible.size() + (t > 1));  // constraints do exclude some

  CoverReport report;
  std::set<Values> covered;
  const auto rows = covering_array(space, constraints, resolved, t, report);
  for (const auto& row : rows) {
    ASSERT_EQ(constraints.check(row), 0) << id_of(space, row);
    ASSERT_TRUE((*resolved.where)(row));
    add_tuples(space, row, varied, t, covered);
  }
  EXPECT_EQ(covered, possible);
  EXPECT_EQ(report.tuples, static_cast<std::int64_t>(possible.size()));
  EXPECT_EQ(report.undecided, 0);
  EXPECT_EQ(report.excluded.size(), in_suite.size() - possible.size());
  for (const auto& excluded : report.excluded) {
    Values tuple;
    for (const auto& [a, v] : excluded.tuple) tuple.emplace(static_cast<int>(a), space.text(a, v));
    ASSERT_TRUE(in_suite.contains(tuple) && !possible.contains(tuple)) << to_text(space, excluded.tuple);
    ASSERT_FALSE(excluded.constraint.empty());
  }
  EXPECT_LT(rows.size(), points.size() / 4);
  CoverReport again;
  EXPECT_EQ(covering_array(space, constraints, resolved, t, again), rows);  // deterministic

  CoverReport subset_report;
  std::set<Values> subset_covered;
  for (const std::size_t i : covering_subset(space, constraints, points, constraint, t, subset_report)) {
    ASSERT_EQ(constraint[i], 0);
    add_tuples(space, points[i], varied, t, subset_covered);
  }
  EXPECT_EQ(subset_covered, possible);
  EXPECT_EQ(subset_report.tuples, static_cast<std::int64_t>(possible.size()));
  EXPECT_EQ(subset_report.excluded.size(), in_suite.size() - possible.size());
}

INSTANTIATE_TEST_SUITE_P(Strengths, CoverTest, ::testing::Values(1, 2, 3));

TEST(Cover, HasOneCaseForASinglePoint) {
  Space space(committed());
  Constraints constraints(space);
  catalogue::MatrixBlock one;
  one.axes = {{"producer", {"vllm-fa-nhd"}}};
  CoverReport report;
  EXPECT_EQ(covering_array(space, constraints, resolve_block(space, one, "test"), 2, report).size(), 1u);
}

}  // namespace
}  // namespace kvcts::matrix
