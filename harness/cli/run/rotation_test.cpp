// Nights with a budget, simulated: no case runs, each "takes" a time that is drawn.
#include "cli/run/rotation.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>

#include "cli/exit.hpp"
#include "run/store/testing/sample.hpp"
#include "testing/checkout.hpp"

namespace kvcts::cli {
namespace {

namespace fs = std::filesystem;

CaseResult ran(const Item& item, double seconds, bool fails = false) {
  CaseResult result;
  result.id = item.planned.id;
  result.case_digest = item.planned.digest;
  result.outcome = fails ? Outcome::fail : Outcome::pass;
  result.verdict = fails ? Verdict::unexpected : Verdict::as_expected;
  result.wall_ns = static_cast<std::int64_t>(seconds * 1e9);
  return result;
}

class Nights : public ::testing::Test {
 protected:
  Nights() {
    matrix::Query query;
    query.suites = {"smoke"};
    plan_.emplace(catalogue_, query, PlanOptions{});
    std::lognormal_distribution<double> takes(-4, 1);
    for (const Item& item : plan_->items()) {
      if (const auto [at, fresh] = seconds_.try_emplace(item.planned.execution, 0); fresh) at->second = takes(random_);
      runnable_ += !item.decided;
    }
  }
  /// One night: what is chosen is run. `fails`: an id that does.
  Tonight night(double budget, const std::string& fails = "") {
    Rotation rotation(file_);
    const Tonight chosen = choose(*plan_, rotation, budget, 2, 1);
    ++now_;
    for (std::size_t i = 0; i < plan_->items().size(); ++i) {
      const Item& item = plan_->items()[i];
      if (chosen.kept[i] && !item.decided)
        rotation.saw(ran(item, seconds_[item.planned.execution], item.planned.id == fails), now_),
            last_[item.planned.id] = now_;
    }
    rotation.save();
    return chosen;
  }
  std::size_t index_of(const std::string& id) const {
    std::size_t i = 0;
    while (plan_->items().at(i).planned.id != id) ++i;
    return i;
  }

  store::sample::TemporaryDirectory folder_;
  fs::path file_{folder_.path() / "rotation.json"};
  catalogue::Catalogue catalogue_{checkout::source() + "/cases"};
  std::optional<Plan> plan_;
  std::mt19937 random_{3};
  std::map<std::string, double> seconds_;
  std::map<std::string, std::int64_t> last_;
  std::int64_t now_{0}, runnable_{0};
};

TEST_F(Nights, CoverEveryCaseWithinTheAnnouncedNights) {
  const Tonight first = night(1.5);
  EXPECT_EQ(first.never + first.left_out, runnable_);
  EXPECT_GT(first.left_out, 0);
  const Tonight second = night(1.5);  // it knows what cases cost by now
  EXPECT_GT(second.nights, 2);
  std::int64_t more = 0;
  while (std::ssize(last_) < runnable_ && more < 100) night(1.5), ++more;
  EXPECT_EQ(std::ssize(last_), runnable_);
  EXPECT_LE(more, second.nights) << "one night more for rounding";
  // From then on those that were seen longest ago.
  for (int i = 0; i < 3; ++i) {
    const auto before = last_;
    const Tonight later = night(1.5);
    EXPECT_EQ(later.rest + later.left_out, runnable_) << later.words();
    std::int64_t newest_run = 0, oldest_left = INT64_MAX;
    for (std::size_t n = 0; n < plan_->items().size(); ++n) {
      const Item& item = plan_->items()[n];
      if (item.decided) continue;
      if (later.kept[n])
        newest_run = std::max(newest_run, before.at(item.planned.id));
      else
        oldest_left = std::min(oldest_left, before.at(item.planned.id));
    }
    EXPECT_LE(newest_run, oldest_left);
  }
}

TEST_F(Nights, PutChangedAndFailedCasesFirst) {
  night(0);  // no budget: everything
  ASSERT_EQ(std::ssize(last_), runnable_);
  std::string changed, failed;
  for (const Item& item : plan_->items()) {
    if (item.decided) continue;
    if (changed.empty()) changed = item.planned.id;
    failed = item.planned.id;
  }
  Rotation rotation(file_);
  CaseResult other = ran(plan_->items()[index_of(changed)], 0.01);
  other.case_digest = "of other data";
  rotation.saw(other, 100);
  rotation.saw(ran(plan_->items()[index_of(failed)], 0.01, true), 100);
  rotation.save();
  const Tonight tonight = choose(*plan_, Rotation(file_), 0.05, 1, 1);
  EXPECT_TRUE(tonight.kept[index_of(changed)]);
  EXPECT_TRUE(tonight.kept[index_of(failed)]);
  EXPECT_GE(tonight.changed, 1);
  EXPECT_GE(tonight.failed, 1);
  EXPECT_EQ(tonight.never, 0);
  EXPECT_NE(tonight.words().find("changed, "), std::string::npos) << tonight.words();
}

TEST_F(Nights, KeepCasesOfOneExecutionTogether) {
  const Tonight tonight = night(1);
  std::map<std::string, std::set<bool>> kept;
  for (std::size_t i = 0; i < plan_->items().size(); ++i) {
    if (plan_->items()[i].decided)
      EXPECT_TRUE(tonight.kept[i]);
    else
      kept[plan_->items()[i].planned.execution].insert(tonight.kept[i]);
  }
  for (const auto& [execution, both] : kept) EXPECT_EQ(both.size(), 1u);
}

TEST_F(Nights, MergeTheRecordsOfTwoShards) {
  Rotation one(file_), other(file_);
  one.saw(ran(plan_->items()[0], 1), 1);
  other.saw(ran(plan_->items()[1], 1), 2);
  one.save();
  other.save();
  const Rotation both(file_);
  EXPECT_NE(both.find(plan_->items()[0].planned.id), nullptr);
  EXPECT_NE(both.find(plan_->items()[1].planned.id), nullptr);
}

TEST_F(Nights, RefuseAFileOfAnotherFormat) {
  for (const char* text : {"", "{", "[]", R"({"format": "kvcts-results", "version": 1, "cases": {}})",
                           R"({"format": "kvcts-rotation", "version": 2, "cases": {}})",
                           R"({"format": "kvcts-rotation", "version": 1, "cases": {"x": ["d", "when"]}})"}) {
    std::ofstream(file_) << text;
    EXPECT_THROW(Rotation{file_}, UsageError) << text;
  }
}

}  // namespace
}  // namespace kvcts::cli
