// Pairs of runs with known differences, drawn at random: each is reported as it is, and noise is not.
#include "cli/report/compare.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "run/store/store.hpp"
#include "run/store/testing/sample.hpp"

namespace kvcts::report {
namespace {

struct Made {
  std::string id, digest, message;
  Outcome outcome{Outcome::pass};
  FaultClass fault_class{};
  std::string engine{"memcpy"};
  Evidence evidence{Evidence::modelled};
  double ms{5};
  std::int64_t failed_tries{0};  ///< of 10

  void flaky(std::int64_t failed) {
    outcome = Outcome::flaky, fault_class = FaultClass::stale_block, message = "7 wrong bytes", failed_tries = failed;
  }
};

/// 300 cases over four engines; most pass, some fail in both runs.
std::vector<Made> night(std::mt19937& random) {
  std::vector<Made> out;
  const std::array<std::string, 4> engines{"memcpy", "shm", "ucx-shm", "nixl-tcp"};
  for (int i = 0; i < 300; ++i) {
    Made one{fmt::format("kv/case={}", i),
             fmt::format("digest{:026}", i),
             "",
             Outcome::pass,
             FaultClass::none,
             engines[random() % engines.size()],
             Evidence::modelled,
             2.0 + static_cast<double>(random() % 100)};
    if (i % 60 == 59) one.outcome = Outcome::fail, one.fault_class = FaultClass::wrong_stride, one.message = "7 wrong bytes";
    out.push_back(one);
  }
  return out;
}

store::RunReader stored(const std::filesystem::path& folder, const std::vector<Made>& cases) {
  store::RunInfo info = store::sample::info();
  info.suite = "smoke";
  store::RunStore store = store::RunStore::create(folder, info, {"kvcts", "run"});
  std::vector<store::PlannedCase> planned;
  for (const Made& one : cases) planned.push_back({one.id, one.digest, one.digest, {Expected{}}});
  store.plan(planned);
  for (const Made& one : cases) {
    CaseResult result;
    result.id = one.id;
    result.outcome = one.outcome;
    result.verdict = one.outcome == Outcome::pass      ? Verdict::as_expected
                     : one.outcome == Outcome::skipped ? Verdict::skipped
                                                       : Verdict::unexpected;
    result.evidence = one.evidence;
    result.diagnosis.fault_class = one.fault_class;
    result.diagnosis.exact = one.fault_class != FaultClass::none;
    result.message = one.message;
    result.case_digest = result.execution = one.digest;
    result.facts = {{"axes", {{"engine", one.engine}, {"op", "write"}}}};
    if (one.failed_tries > 0 || one.outcome == Outcome::pass) result.tries = {10, one.failed_tries, 0, {}};
    if (one.failed_tries > 0)
      result.tries.failures = {{3, Outcome::fail, std::nullopt, FaultClass::stale_block, one.message, 1}};
    result.wall_ns = static_cast<std::int64_t>(one.ms * 1e6);
    store.record(result);
  }
  store.finish(store::Ending::complete);
  return store::RunReader::open(folder);
}

/// Times of a machine with other work: 10 % either way, and one case in 30 takes up to ten times as long.
void jitter(std::vector<Made>& cases, std::mt19937& random, double pace = 1) {
  std::lognormal_distribution<double> usual(0, 0.1);
  for (Made& one : cases)
    one.ms *= pace * usual(random) * (random() % 30 == 0 ? 1.0 + static_cast<double>(random() % 90) / 10 : 1.0);
}

class Pairs : public ::testing::TestWithParam<int> {};

TEST_P(Pairs, EveryDifferenceIsToldAndNoOther) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  std::vector<Made> before = night(random), after = before;
  std::map<std::string, Change> wanted;
  // Ten flakes: two in the first night only, with little and with much to say that they are mended, one that always fails
  // now, four in both.
  for (int i = 0; i < 8; ++i) {
    before[static_cast<std::size_t>(i)].flaky(i == 1 ? 7 : 1 + static_cast<std::int64_t>(random() % 3));
    after[static_cast<std::size_t>(i)] = before[static_cast<std::size_t>(i)];
  }
  after[0].outcome = after[1].outcome = Outcome::pass;
  after[0].fault_class = after[1].fault_class = FaultClass::none, after[0].message = after[1].message = "";
  after[0].failed_tries = after[1].failed_tries = 0;
  after[2].outcome = Outcome::fail, after[2].failed_tries = 10;
  after[3].outcome = Outcome::fail, after[3].fault_class = FaultClass::truncated, after[3].failed_tries = 10;
  wanted = {{before[0].id, Change::flaky_passed},
            {before[1].id, Change::fixed},
            {before[2].id, Change::newly_failing},
            {before[3].id, Change::other_cause}};
  for (int i = 4; i < 8; ++i) after[static_cast<std::size_t>(i)].failed_tries = 1 + static_cast<std::int64_t>(random() % 3);
  const auto some = [&](int n, Change change, Outcome was, const std::function<void(Made&)>& edit) {
    for (int done = 0; done < n;) {
      Made& one = after[random() % after.size()];
      if (one.outcome != was || wanted.contains(one.id)) continue;
      edit(one);
      wanted[one.id] = change;
      ++done;
    }
  };
  some(10, Change::newly_failing, Outcome::pass, [](Made& one) {
    one.outcome = Outcome::fail, one.fault_class = FaultClass::axis_permuted, one.message = "31 wrong bytes";
  });
  some(2, Change::newly_flaky, Outcome::pass, [&](Made& one) { one.flaky(1 + static_cast<std::int64_t>(random() % 3)); });
  some(2, Change::fixed, Outcome::fail, [](Made& one) { one.outcome = Outcome::pass, one.fault_class = FaultClass::none; });
  some(1, Change::other_cause, Outcome::fail, [](Made& one) { one.fault_class = FaultClass::stale_block; });
  some(3, Change::newly_skipped, Outcome::pass,
       [](Made& one) { one.outcome = Outcome::skipped, one.message = "no GPU here"; });
  some(2, Change::other_evidence, Outcome::pass, [](Made& one) { one.evidence = Evidence::executed; });
  some(3, Change::renamed, Outcome::pass, [](Made& one) { one.id += "/now"; });
  std::set<std::string> gone;
  for (int i = 0; i < 4;) {
    const std::size_t at = random() % after.size();
    if (wanted.contains(after[at].id)) continue;
    gone.insert(after[at].id);
    after.erase(after.begin() + static_cast<std::ptrdiff_t>(at));
    ++i;
  }
  for (const std::string& id : gone) wanted[id] = Change::vanished;
  for (int i = 0; i < 2; ++i) {
    after.push_back({fmt::format("kv/new={}", i), fmt::format("new{:029}", i), "", i == 0 ? Outcome::pass : Outcome::fail,
                     i == 0 ? FaultClass::none : FaultClass::truncated, "memcpy", Evidence::modelled, 3});
    wanted[after.back().id] = i == 0 ? Change::added : Change::newly_failing;
  }
  for (Made& one : after) one.ms *= one.engine == "nixl-tcp" ? 2 : 1;
  jitter(before, random);
  jitter(after, random, 1.3);
  std::shuffle(after.begin(), after.end(), random);

  store::sample::TemporaryDirectory folder;
  const Comparison found = compare(stored(folder.path() / "a", before), stored(folder.path() / "b", after));
  std::map<std::string, Change> told;
  for (const Changed& one : found.changes) told[one.id] = one.change;
  EXPECT_EQ(told, wanted);
  ASSERT_EQ(found.slower.size(), 1u) << to_json(found)["slower"];
  EXPECT_EQ(found.slower[0].group, "engine nixl-tcp");
  EXPECT_NEAR(found.slower[0].ratio, 2, 0.3);
  EXPECT_EQ(found.alike + std::ssize(found.changes) - std::ssize(gone), std::ssize(after));

  std::ostringstream out;
  print_comparison(out, found, Repro{});
  EXPECT_NE(out.str().find("newly failing (12)\n  PASS -> FAIL axis-permuted: # wrong bytes (10 cases)\n"),
            std::string::npos)
      << out.str();
  EXPECT_NE(out.str().find("12 newly failing, 2 newly flaky, 2 other cause, 3 newly skipped, 4 vanished, 2 other evidence, "
                           "1 flaky, passed this time, 3 fixed, 1 new, 3 renamed, 1 group slower; "),
            std::string::npos)
      << out.str();
}
INSTANTIATE_TEST_SUITE_P(Compare, Pairs, ::testing::Range(1, 11));

TEST(Compare, NoiseIsNoSlowDown) {
  for (unsigned seed = 100; seed < 130; ++seed) {
    std::mt19937 random(seed);
    std::vector<Made> before = night(random), after = before;
    jitter(before, random);
    jitter(after, random, 1 + static_cast<double>(seed % 5) / 10);
    store::sample::TemporaryDirectory folder;
    const Comparison found = compare(stored(folder.path() / "a", before), stored(folder.path() / "b", after));
    EXPECT_TRUE(found.slower.empty()) << seed << to_json(found)["slower"];
    EXPECT_TRUE(found.changes.empty()) << seed;
  }
}

TEST(Compare, ARunThatIsSlowerAsAWholeIsSaid) {
  std::mt19937 random(5);
  std::vector<Made> before = night(random), after = before;
  jitter(before, random);
  jitter(after, random, 1.8);
  store::sample::TemporaryDirectory folder;
  const Comparison found = compare(stored(folder.path() / "a", before), stored(folder.path() / "b", after));
  ASSERT_EQ(found.slower.size(), 1u);
  EXPECT_EQ(found.slower[0].group, "all cases");
}

}  // namespace
}  // namespace kvcts::report
