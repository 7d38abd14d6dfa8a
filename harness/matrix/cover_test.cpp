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

/// Every point of block(), and the tuples of `strength` values in it that can run, counted by brute force.
class CoverTest : public ::testing::TestWithParam<int> {
 protected:
  CoverTest() {
    each_point(space_, constraints_, block_, [&](const Point& point, int stopped) {
      points_.push_back(point), stopped_.push_back(stopped);
      add(point, all_);
      if (stopped == 0) add(point, possible_);
    });
  }
  void add(const Point& point, std::set<Values>& out) const {
    add_tuples(space_, point, {0, 1, 2, 3, 6, 9, 12}, strength_, out);
  }
  std::vector<Point> array(CoverReport& report) { return covering_array(space_, constraints_, block_, strength_, report); }

  const int strength_{GetParam()};
  Space space_{committed()};
  Constraints constraints_{space_};
  const EnumerationBlock block_{resolve_block(space_, block(), "test")};
  std::vector<Point> points_;
  std::vector<int> stopped_;  ///< of each point: the constraint that stops it; 0 = it can run
  std::set<Values> all_, possible_;
};

TEST_P(CoverTest, CoversExactlyTheTuplesThatCanRun) {
  ASSERT_GT(possible_.size(), 20u);
  CoverReport report;
  std::set<Values> covered;
  for (const auto& row : array(report)) {
    ASSERT_EQ(constraints_.check(row), 0) << id_of(space_, row);
    ASSERT_TRUE((*block_.where)(row));
    add(row, covered);
  }
  EXPECT_EQ(covered, possible_);
  EXPECT_EQ(report.tuples, static_cast<std::int64_t>(possible_.size()));
  EXPECT_EQ(report.undecided, 0);
}

TEST_P(CoverTest, NamesTheConstraintOfEachExcludedTuple) {
  ASSERT_GE(all_.size(), possible_.size() + (strength_ > 1)) << "constraints do exclude some";
  CoverReport report;
  array(report);
  EXPECT_EQ(report.excluded.size(), all_.size() - possible_.size());
  for (const auto& excluded : report.excluded) {
    Values tuple;
    for (const auto& [a, v] : excluded.tuple) tuple.emplace(static_cast<int>(a), space_.text(a, v));
    ASSERT_TRUE(all_.contains(tuple) && !possible_.contains(tuple)) << to_text(space_, excluded.tuple);
    ASSERT_FALSE(excluded.constraint.empty());
  }
}

TEST_P(CoverTest, IsSmallAndDeterministic) {
  CoverReport first, again;
  const auto rows = array(first);
  EXPECT_LT(rows.size(), points_.size() / 4);
  EXPECT_EQ(array(again), rows);
}

TEST_P(CoverTest, SubsetCoversExactlyTheTuplesThatCanRun) {
  CoverReport report;
  std::set<Values> covered;
  for (const std::size_t i : covering_subset(space_, constraints_, points_, stopped_, strength_, report)) {
    ASSERT_EQ(stopped_[i], 0);
    add(points_[i], covered);
  }
  EXPECT_EQ(covered, possible_);
  EXPECT_EQ(report.tuples, static_cast<std::int64_t>(possible_.size()));
  EXPECT_EQ(report.excluded.size(), all_.size() - possible_.size());
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
