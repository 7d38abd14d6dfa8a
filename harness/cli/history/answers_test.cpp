// 60 nights with changes drawn at random: each is found, with its first bad night, and quiet nights say nothing.
#include "cli/history/answers.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "run/store/store.hpp"
#include "run/store/testing/sample.hpp"

namespace kvcts::history {
namespace {

constexpr std::int64_t first_night = 1'790'000'000'000, day_ms = 86'400'000;

struct Seeded {
  std::map<int, int> broken;                           ///< case -> first bad night
  std::map<int, double> flaky;                         ///< case -> rate
  std::map<std::string, std::pair<int, double>> slow;  ///< engine -> first slow night, ratio
};

/// Folders of nights, made once and written over.
class Nights {
 public:
  Nights(int cases, unsigned seed, Seeded seeded) : cases_(cases), random_(seed), seeded_(std::move(seeded)) {
    for (int i = 0; i < cases; ++i) {
      usual_.push_back(2.0 + static_cast<double>(random_() % 100));
      engines_.push_back(std::array{"memcpy", "shm", "ucx-shm", "nixl-cma"}[random_() % 4]);
    }
  }

  std::filesystem::path store(int night) {
    store::RunInfo info = store::sample::info();
    info.suite = "nightly", info.started_ms = first_night + night * day_ms;
    info.machine["packages"] = {{"engines/nixl/nixl_cu12", night < 40 ? "1.2.0" : "1.5.1"}};
    const std::filesystem::path folder = folder_.path() / fmt::format("{}", night);
    store::RunStore run = store::RunStore::create(folder, info, {"kvcts", "run"});
    std::vector<store::PlannedCase> planned;
    for (int i = 0; i < cases_; ++i)
      planned.push_back({id(i), fmt::format("{:032}", i), fmt::format("{:032}", i), {Expected{}}});
    run.plan(planned);
    std::lognormal_distribution<double> usual(0, 0.15);
    const double pace = usual(random_) * (random_() % 5 == 0 ? 1.6 : 1.0);
    for (int i = 0; i < cases_; ++i) {
      CaseResult r;
      r.id = id(i), r.case_digest = r.execution = planned[static_cast<std::size_t>(i)].digest;
      const auto broken = seeded_.broken.find(i);
      const auto flaky = seeded_.flaky.find(i);
      const bool fails = (broken != seeded_.broken.end() && night >= broken->second) ||
                         (flaky != seeded_.flaky.end() && std::uniform_real_distribution<>(0, 1)(random_) < flaky->second);
      if (fails) ++failures[i];
      r.outcome = fails ? Outcome::fail : Outcome::pass;
      r.verdict = fails ? Verdict::unexpected : Verdict::as_expected;
      r.diagnosis.fault_class = fails ? FaultClass::stale_block : FaultClass::none;
      r.facts = {{"axes", {{"engine", engines_[static_cast<std::size_t>(i)]}, {"op", i % 2 == 0 ? "read" : "write"}}}};
      double ms = usual_[static_cast<std::size_t>(i)] * pace * usual(random_) *
                  (random_() % 30 == 0 ? 1 + double(random_() % 90) / 10 : 1);
      const auto slow = seeded_.slow.find(engines_[static_cast<std::size_t>(i)]);
      if (slow != seeded_.slow.end() && night >= slow->second.first) ms *= slow->second.second;
      r.wall_ns = static_cast<std::int64_t>(ms * 1e6);
      run.record(r);
    }
    run.finish(store::Ending::complete);
    return folder;
  }

  static std::string id(int i) { return fmt::format("kv/producer=vllm-fa-nhd/seed={}", i + 2); }
  std::map<int, std::int64_t> failures;  ///< nights that each case has failed in
  std::filesystem::path file() const { return folder_.path() / "history.db"; }

 private:
  store::sample::TemporaryDirectory folder_;
  int cases_;
  std::mt19937 random_;
  Seeded seeded_;
  std::vector<double> usual_;
  std::vector<const char*> engines_;
};

TEST(History, FindsRegressionsFlakesAndSlowdownsInSixtyNights) {
  std::mt19937 random(11);
  Seeded seeded;
  while (seeded.broken.size() < 5) seeded.broken[static_cast<int>(random() % 200)] = 20 + static_cast<int>(random() % 39);
  for (const double rate : {0.05, 0.1, 0.15, 0.2, 0.3}) {
    int i = static_cast<int>(random() % 200);
    while (seeded.broken.contains(i) || seeded.flaky.contains(i)) i = static_cast<int>(random() % 200);
    seeded.flaky[i] = rate;
  }
  seeded.slow = {{"shm", {30, 2.0}}, {"nixl-cma", {50, 1.6}}};
  Nights nights(200, 12, seeded);
  store::History history = store::History::open_or_create(nights.file());
  for (int n = 0; n < 60; ++n) EXPECT_EQ(history.add({nights.store(n)}), std::vector{store::History::Added::added});

  const Answers found = answers(history, 0, "");
  ASSERT_EQ(found.runs.size(), 60u);
  std::map<std::string, int> broken, wanted;
  for (const New& one : found.fresh) broken[one.id] = static_cast<int>(one.bad);
  for (const auto& [i, night] : seeded.broken) wanted[Nights::id(i)] = night;
  EXPECT_EQ(broken, wanted);
  std::map<std::string, std::int64_t> flaky, rates;
  for (const Flaky& one : found.flaky) flaky[one.id] = one.failed;
  for (const auto& [i, rate] : seeded.flaky)
    if (nights.failures[i] > 0) rates[Nights::id(i)] = nights.failures[i];
  EXPECT_EQ(flaky, rates);
  std::map<std::string, std::size_t> slow;
  for (const SlowCase& one : found.slow) slow[one.group] = one.since;
  EXPECT_EQ(slow, (std::map<std::string, std::size_t>{{"engine shm", 30}, {"engine nixl-cma", 50}})) << text(found, "slow");
  EXPECT_NE(text(found, "new").find("since 20"), std::string::npos);
}

TEST(History, ReportsNothingForQuietNights) {
  Nights nights(200, 21, {});
  store::History history = store::History::open_or_create(nights.file());
  for (int n = 0; n < 30; ++n) {
    history.add({nights.store(n)});
    const Answers found = answers(history, 0, "");
    EXPECT_TRUE(found.fresh.empty() && found.flaky.empty() && found.slow.empty()) << n << text(found, "");
  }
}

TEST(History, CountsEachRunOnceInAnyOrder) {
  Nights nights(20, 31, {{{3, 2}}, {}, {}});
  const auto file = nights.file();
  std::vector<std::filesystem::path> folders;
  for (int n = 0; n < 4; ++n) folders.push_back(nights.store(n));
  store::History history = store::History::open_or_create(file);
  for (const int n : {2, 0, 3, 1, 2, 0}) history.add({folders[static_cast<std::size_t>(n)]});
  EXPECT_EQ(history.add({folders[1]}), std::vector{store::History::Added::known});
  EXPECT_THROW(history.add({nights.store(4), file.parent_path() / "nowhere"}), store::Error);
  ASSERT_EQ(history.runs().size(), 4u);
  EXPECT_EQ(strip(history.find(Nights::id(3)).points), "..FF");
  const Answers found = answers(store::History::open(file), 0, "nightly");
  ASSERT_EQ(found.fresh.size(), 1u);
  EXPECT_EQ(found.fresh[0].good, 1u);
  EXPECT_EQ(answers(history, first_night + 3 * day_ms, "").fresh.size(), 0u);
  EXPECT_EQ(answers(history, first_night + 2 * day_ms, "").fresh.size(), 1u);
  EXPECT_EQ(answers(history, 0, "", first_night + day_ms).fresh.size(), 0u);
  const std::string reported = story(history.find(Nights::id(3)), history.runs());
  EXPECT_NE(reported.find("2 of 4 nights fail"), std::string::npos) << reported;
  EXPECT_TRUE(history.find("kv/no-such").points.empty());
}

TEST(History, RefusesAFileThatIsNoHistory) {
  store::sample::TemporaryDirectory folder;
  EXPECT_THROW(store::History::open(folder.path() / "none"), store::Error);
  Nights nights(3, 41, {});
  try {
    store::History::open(nights.store(0) / "store.db");
    FAIL();
  } catch (const store::Error& error) {
    EXPECT_NE(std::string(error.what()).find("this is no history"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kvcts::history
