#include "run/store/merge.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "run/store/store.hpp"
#include "run/store/testing/sample.hpp"

namespace kvcts::store {
namespace {

namespace fs = std::filesystem;

/// Shards 1 to n of a plan of twelve cases: every n-th one.
struct Shards {
  explicit Shards(int n) {
    for (int shard = 1; shard <= n; ++shard) folders.push_back(make(shard, n, [](RunInfo&) {}));
  }

  fs::path make(int shard, int n, const std::function<void(RunInfo&)>& change, int decided = 12) {
    const fs::path folder = dir.path() / ("s" + std::to_string(made++));
    RunInfo info = sample::info();
    info.selection = "--suite sample --shard " + std::to_string(shard) + "/" + std::to_string(n);
    info.part = {{"shard", shard},
                 {"shards", n},
                 {"whole", 12},
                 {"selection", "--suite sample"},
                 {"places", nlohmann::json::array()}};
    std::vector<PlannedCase> planned;
    for (int i = shard - 1; i < 12; i += n) {
      info.part["places"].push_back(i);
      planned.push_back(sample::planned(i));
    }
    change(info);
    RunStore store = RunStore::create(folder, info, {"kvcts", "run", "--shard", std::to_string(shard)});
    store.plan(planned);
    for (const PlannedCase& c : planned) {
      if (decided-- <= 0) break;
      CaseResult result;
      result.id = c.id;
      result.outcome = Outcome::pass;
      result.verdict = Verdict::as_expected;
      result.case_digest = c.digest;
      result.execution = c.execution;
      store.record(result);
    }
    store.finish(decided < 0 ? Ending::interrupted : Ending::complete, decided < 0 ? "SIGINT" : "");
    return folder;
  }

  std::string error_of(const std::vector<fs::path>& parts) {
    try {
      merge(out(), parts, {"kvcts", "merge"});
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(out())) << "nothing half merged";
      return error.what();
    }
    return "";
  }

  fs::path out() const { return dir.path() / "whole"; }

  sample::TemporaryDirectory dir;
  int made{0};
  std::vector<fs::path> folders;
};

TEST(Merge, RestoresTheWholeRunInItsOrder) {
  Shards shards(3);
  merge(shards.out(), {shards.folders[2], shards.folders[0], shards.folders[1]}, {"kvcts", "merge"});
  const RunReader whole = RunReader::open(shards.out());
  const std::vector<Row> rows = whole.rows();
  ASSERT_EQ(rows.size(), 12u);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(rows[static_cast<std::size_t>(i)].planned, sample::planned(i));
    EXPECT_TRUE(rows[static_cast<std::size_t>(i)].decided);
  }
  EXPECT_EQ(whole.info().selection, "--suite sample");
  EXPECT_TRUE(whole.info().part.empty()) << "a whole run, which is no shard of anything";
  const std::vector<Session> sessions = whole.sessions();
  ASSERT_EQ(sessions.size(), 4u);
  EXPECT_EQ(sessions.back().argv, (std::vector<std::string>{"kvcts", "merge"}));
  EXPECT_EQ(sessions.back().ending, Ending::complete);
  EXPECT_EQ(whole.counts().decided, 12);
}

TEST(Merge, RefusesMismatchedShardsInOneSentence) {
  Shards shards(3);
  const auto with = [&](const std::function<void(RunInfo&)>& change) {
    return shards.error_of({shards.folders[0], shards.folders[1], shards.make(3, 3, change)});
  };
  EXPECT_NE(with([](RunInfo& info) { info.seed = 7; }).find("found another seed ('7', there '"), std::string::npos);
  EXPECT_NE(
      with([](RunInfo& info) { info.provenance["commit"] = "abc"; }).find("found another commit ('abc', there 'ef559fb+')"),
      std::string::npos);
  EXPECT_NE(with([](RunInfo& info) { info.part["selection"] = "--suite other"; }).find("found another selection"),
            std::string::npos);
  EXPECT_NE(with([](RunInfo& info) {
              info.part = nlohmann::json::object();
            }).find("expected a shard (kvcts run --shard i/n), found a whole run"),
            std::string::npos);
  const std::string other_times = with([](RunInfo& info) { info.part["times"] = "00c0ffee"; });
  EXPECT_NE(other_times.find("expected the shards of " + shards.folders[0].string() +
                             ", found a cut by other times; run all "
                             "shards with the same copy of the file of --shard-times"),
            std::string::npos)
      << other_times;
  EXPECT_EQ(shards.error_of({shards.folders[0], shards.folders[2]}),
            "shard 2 of 3 is missing, and with it 4 of 12 planned cases; give its run, too");
  EXPECT_EQ(shards.error_of({shards.folders[0]}),
            "shards 2, 3 of 3 are missing, and with them 8 of 12 planned cases; give their runs, too");
  EXPECT_NE(shards.error_of({shards.folders[0], shards.folders[1], shards.folders[2], shards.make(2, 3, [](RunInfo&) {})})
                .find("and 3 more cases are decided in"),
            std::string::npos);
  EXPECT_NE(shards.error_of({shards.folders[0], shards.dir.path() / "nowhere"}).find("nowhere"), std::string::npos);
  fs::create_directories(shards.out());
  std::ofstream(shards.out() / "mine") << "x";
  EXPECT_THROW(merge(shards.out(), shards.folders, {}), Error);
  EXPECT_TRUE(fs::exists(shards.out() / "mine"));
}

TEST(Merge, PrefersTheFinishedAttemptOfAShard) {
  Shards shards(2);
  const fs::path begun = shards.make(2, 2, [](RunInfo&) {}, 0);
  merge(shards.out(), {shards.folders[0], begun, shards.folders[1]}, {"kvcts", "merge"});
  EXPECT_EQ(RunReader::open(shards.out()).counts().decided, 12);
}

TEST(Merge, KeepsAShardThatEndedEarly) {
  Shards shards(2);
  merge(shards.out(), {shards.folders[0], shards.make(2, 2, [](RunInfo&) {}, 2)}, {"kvcts", "merge"});
  const RunReader whole = RunReader::open(shards.out());
  EXPECT_EQ(whole.counts().decided, 8);
  EXPECT_EQ(whole.sessions().back().ending, Ending::interrupted);
  EXPECT_NE(whole.sessions().back().reason.find("SIGINT"), std::string::npos);
}

TEST(Merge, ReplacesWhatAKilledMergeLeft) {
  Shards shards(2);
  fs::create_directories(shards.out().string() + ".merging");
  std::ofstream(shards.out().string() + ".merging/store.db") << "half";
  merge(shards.out(), shards.folders, {"kvcts", "merge"});
  EXPECT_EQ(RunReader::open(shards.out()).counts().decided, 12);
  EXPECT_FALSE(fs::exists(shards.out().string() + ".merging"));
}

}  // namespace
}  // namespace kvcts::store
