// Pairs of runs with known differences, drawn at random: each is reported as it is, and noise is not.
#include "cli/report/compare.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "case/catalogue/error.hpp"
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
  std::string op{"write"}, dtype{"bf16"};
  bool optional{false};  ///< what it lacks, if it is skipped
  double own_ms{1};      ///< of its time, the suite's own work

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
    one.op = random() % 2 == 0 ? "read" : "write";
    one.dtype = std::array{"bf16", "fp16", "fp8_e4m3"}[random() % 3];
    if (i % 60 == 59) one.outcome = Outcome::fail, one.fault_class = FaultClass::wrong_stride, one.message = "7 wrong bytes";
    out.push_back(one);
  }
  return out;
}

store::RunReader stored(const std::filesystem::path& folder, const std::vector<Made>& cases,
                        const std::string& suite = "smoke", const std::string& nixl = "1.5.1") {
  store::RunInfo info = store::sample::info();
  info.suite = suite;
  info.machine["packages"] = {{"engines/nixl-" + nixl + "/nixl_cu12", nixl}};
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
    result.facts = {{"axes", {{"engine", one.engine}, {"op", one.op}, {"dtype", one.dtype}, {"connector", "reference"}}}};
    if (one.outcome == Outcome::skipped) result.facts["lack"] = {{"name", "gpu"}, {"optional", one.optional}};
    if (one.failed_tries > 0 || one.outcome == Outcome::pass) result.tries = {10, one.failed_tries, 0, {}};
    if (one.failed_tries > 0)
      result.tries.failures = {{3, Outcome::fail, std::nullopt, FaultClass::stale_block, one.message, 1}};
    result.wall_ns = static_cast<std::int64_t>(one.ms * 1e6);
    result.phases = {{Phase::compare, static_cast<std::int64_t>(one.own_ms * 1e6)}};
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

Comparison compared(const std::vector<Made>& before, const std::vector<Made>& after) {
  const store::sample::TemporaryDirectory folder;
  return compare(stored(folder.path() / "a", before), stored(folder.path() / "b", after));
}

std::string printed(const Comparison& comparison) {
  std::ostringstream out;
  print_comparison(out, comparison, Repro{});
  return out.str();
}

void expect_prints(const Comparison& comparison, const std::string& part) {
  const std::string text = printed(comparison);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// Two nights with known changes at random cases, one group of cases slower by 2.5, and noise.
class RandomNights : public ::testing::TestWithParam<int> {
 protected:
  RandomNights() : random_(static_cast<unsigned>(GetParam())), before_(night(random_)), after_(before_) {
    flaky_cases();
    change(10, Change::newly_failing, Outcome::pass, [](Made& one) {
      one.outcome = Outcome::fail, one.fault_class = FaultClass::axis_permuted, one.message = "31 wrong bytes";
    });
    change(2, Change::newly_flaky, Outcome::pass, [&](Made& one) { one.flaky(few()); });
    change(2, Change::fixed, Outcome::fail, [](Made& one) { one.outcome = Outcome::pass, one.fault_class = {}; });
    change(1, Change::other_cause, Outcome::fail, [](Made& one) { one.fault_class = FaultClass::stale_block; });
    change(3, Change::newly_skipped, Outcome::pass,
           [](Made& one) { one.outcome = Outcome::skipped, one.message = "no GPU here"; });
    change(2, Change::other_evidence, Outcome::pass, [](Made& one) { one.evidence = Evidence::executed; });
    change(3, Change::renamed, Outcome::pass, [](Made& one) { one.id += "/now"; });
    remove(4);
    add("kv/new=0", Outcome::pass, FaultClass::none, Change::added);
    add("kv/new=1", Outcome::fail, FaultClass::truncated, Change::newly_failing);
    for (Made& one : after_) one.ms *= slow().contains(one) ? 2.5 : 1;
    jitter(before_, random_);
    jitter(after_, random_, 1.3);
    std::shuffle(after_.begin(), after_.end(), random_);
    found_ = compared(before_, after_);
  }

  std::int64_t few() { return 1 + static_cast<std::int64_t>(random_() % 3); }

  /// Eight: two flaky in the first night only, with weak and strong evidence of a fix; two always fail now; four in both.
  void flaky_cases() {
    const auto passes = [](Made& one) {
      one.outcome = Outcome::pass, one.fault_class = {}, one.message = "", one.failed_tries = 0;
    };
    const auto fails = [](Made& one) { one.outcome = Outcome::fail, one.failed_tries = 10; };
    for (std::size_t i = 0; i < 8; ++i) before_[i].flaky(i == 1 ? 7 : few()), after_[i] = before_[i];
    passes(after_[0]), passes(after_[1]), fails(after_[2]), fails(after_[3]);
    after_[3].fault_class = FaultClass::truncated;
    for (std::size_t i = 4; i < 8; ++i) after_[i].failed_tries = few();
    injected_ = {{before_[0].id, Change::flaky_passed},
                 {before_[1].id, Change::fixed},
                 {before_[2].id, Change::newly_failing},
                 {before_[3].id, Change::other_cause}};
  }

  void change(int n, Change change, Outcome was, const std::function<void(Made&)>& edit) {
    while (n > 0) {
      Made& one = after_[random_() % after_.size()];
      if (one.outcome != was || injected_.contains(one.id)) continue;
      edit(one);
      injected_[one.id] = change;
      --n;
    }
  }

  void remove(int n) {
    while (n > 0) {
      const auto at = after_.begin() + static_cast<std::ptrdiff_t>(random_() % after_.size());
      if (!injected_.try_emplace(at->id, Change::vanished).second) continue;
      after_.erase(at);
      ++removed_, --n;
    }
  }

  void add(const std::string& id, Outcome outcome, FaultClass fault_class, Change change) {
    after_.push_back({id, fmt::format("digest of {:022}", after_.size()), "", outcome, fault_class, "memcpy"});
    injected_[id] = change;
  }

  struct Group {
    std::string name;
    bool (*contains)(const Made&);
  };
  static const Group& slow() {
    static const std::array groups{
        Group{"engine nixl-tcp", [](const Made& one) { return one.engine == "nixl-tcp"; }},
        Group{"op read", [](const Made& one) { return one.op == "read"; }},
        Group{"dtype fp8_e4m3", [](const Made& one) { return one.dtype == "fp8_e4m3"; }},
        Group{"engine shm, op read", [](const Made& one) { return one.engine == "shm" && one.op == "read"; }},
        Group{"engine ucx-shm, dtype fp16", [](const Made& one) { return one.engine == "ucx-shm" && one.dtype == "fp16"; }}};
    return groups[static_cast<std::size_t>(GetParam()) % groups.size()];
  }

  std::mt19937 random_;
  std::vector<Made> before_, after_;
  std::map<std::string, Change> injected_;
  std::ptrdiff_t removed_{0};
  Comparison found_;
};

TEST_P(RandomNights, ReportExactlyTheInjectedChanges) {
  std::map<std::string, Change> reported;
  for (const Changed& one : found_.changes) reported[one.id] = one.change;
  EXPECT_EQ(reported, injected_);
  EXPECT_EQ(found_.lost, 3) << "newly skipped, and no suite lists what they lack as optional";
  EXPECT_EQ(found_.alike + std::ssize(found_.changes) - removed_, std::ssize(after_));
}

TEST_P(RandomNights, ReportTheSlowerGroupAndItsRatio) {
  ASSERT_EQ(found_.slower.size(), 1u) << to_json(found_)["slower"];
  EXPECT_EQ(found_.slower[0].group, slow().name);
  EXPECT_NEAR(found_.slower[0].ratio, 2.5 * 1.3, 0.3);
  EXPECT_NEAR(found_.slower[0].others, 1.3, 0.1);
}

TEST_P(RandomNights, PrintFailuresByCauseAndCountEveryChange) {
  expect_prints(found_, "newly failing (12)\n  PASS -> FAIL axis-permuted: 31 wrong bytes (10 cases)\n");
  expect_prints(found_,
                "12 newly failing, 2 newly flaky, 2 other cause, 3 newly skipped, 4 vanished, 2 other evidence, "
                "1 flaky, passed this time, 3 fixed, 1 new, 3 renamed, 1 group slower; ");
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomNights, ::testing::Range(1, 11));

TEST(Compare, ReportsNoSlowdownForNoise) {
  for (unsigned seed = 100; seed < 130; ++seed) {
    std::mt19937 random(seed);
    std::vector<Made> before = night(random), after = before;
    jitter(before, random);
    jitter(after, random, 1 + static_cast<double>(seed % 5) / 10);
    const Comparison found = compared(before, after);
    EXPECT_TRUE(found.slower.empty()) << seed << to_json(found)["slower"];
    EXPECT_TRUE(found.changes.empty()) << seed;
  }
}

TEST(Compare, ReportsNoSlowdownOnABusyMachine) {
  std::mt19937 random(9);
  std::vector<Made> before = night(random), after = before;
  // Busy minutes meet most cases of one engine, and some of the others.
  for (Made& one : after) one.ms *= random() % 10 < (one.engine == "shm" ? 6 : 2) ? 3 : 1;
  jitter(before, random);
  jitter(after, random);
  store::sample::TemporaryDirectory folder;
  const store::RunReader quiet = stored(folder.path() / "a", before);
  const Comparison some = compare(quiet, stored(folder.path() / "b", after));
  EXPECT_TRUE(some.slower.empty()) << to_json(some)["slower"];
  // A busy night slows the suite's own work as well.
  after = before;
  for (Made& one : after) one.ms *= 3, one.own_ms *= 2.5;
  const Comparison all = compare(quiet, stored(folder.path() / "c", after));
  EXPECT_TRUE(all.slower.empty()) << to_json(all)["slower"];
  expect_prints(all, "pace    3.00 x the time of all cases; of the suite's own work in them 2.50 x");
}

TEST(Compare, ReportsAUniformSlowdownAsAllCases) {
  std::mt19937 random(5);
  std::vector<Made> before = night(random), after = before;
  jitter(before, random);
  jitter(after, random, 2.5);
  const Comparison found = compared(before, after);
  ASSERT_EQ(found.slower.size(), 1u);
  EXPECT_EQ(found.slower[0].group, "all cases");
}

TEST(Compare, SeparatesTwoIndependentSlowdowns) {
  std::mt19937 random(6);
  std::vector<Made> before = night(random), after = before;
  for (Made& one : after) {
    if (one.engine == "shm" && one.op == "read") one.ms *= 13;
    if (one.dtype == "fp8_e4m3") one.ms *= 2;
  }
  jitter(before, random);
  jitter(after, random);
  const Comparison found = compared(before, after);
  ASSERT_EQ(found.slower.size(), 2u) << to_json(found)["slower"];
  EXPECT_EQ(found.slower[0].group, "engine shm, op read");
  EXPECT_EQ(found.slower[0].slow, found.slower[0].cases);
  EXPECT_EQ(found.slower[1].group, "dtype fp8_e4m3");
}

/// 40 cases with ids of the matrix.
std::vector<Made> of_engine(const std::string& engine) {
  std::vector<Made> out;
  for (int i = 0; i < 40; ++i) {
    Made one{fmt::format("kv/producer=vllm-fa-nhd/dtype={}/engine={}/seed={}", i % 2 == 0 ? "fp16" : "fp32", engine, i + 2),
             fmt::format("{}{:026}", engine.substr(0, 6), i), ""};
    one.engine = engine;
    out.push_back(one);
  }
  return out;
}

TEST(Compare, MapsAnEngineVersionOntoItsReplacement) {
  std::vector<Made> before = of_engine("nixl-1.2-cma"), after = of_engine("nixl-cma");
  for (Made& one : after) one.ms *= 3;
  after[3].outcome = Outcome::fail, after[3].fault_class = FaultClass::axis_permuted, after[3].message = "31 wrong bytes";
  store::sample::TemporaryDirectory folder;
  const store::RunReader a = stored(folder.path() / "a", before, "engines", "1.2.0"),
                         b = stored(folder.path() / "b", after, "engines");
  for (const bool given : {false, true}) {
    std::vector<Mapping> mapped;
    if (given) mapped = {mapping_from_text("engine=nixl-1.2-cma:nixl-cma")};
    const Comparison found = compare(a, b, mapped);
    ASSERT_EQ(found.changes.size(), 1u) << to_json(found)["changes"];
    EXPECT_EQ(found.changes[0].change, Change::newly_failing);
    EXPECT_EQ(found.alike, 39);
    ASSERT_EQ(found.slower.size(), 1u);
    EXPECT_EQ(found.slower[0].group, "all cases");
    expect_prints(found, "differ  nixl_cu12 1.2.0 -> 1.5.1\n");
    expect_prints(found, "mapped  engine nixl-1.2-cma -> nixl-cma: 40 cases");
  }
}

TEST(Compare, MapsNothingOntoAnAdditionalEngine) {
  std::vector<Made> before = of_engine("ucx-tcp"), after = before;
  for (const Made& one : of_engine("nixl-cma")) after.push_back(one);
  const Comparison found = compared(before, after);
  EXPECT_TRUE(found.mapped.empty());
  EXPECT_EQ(found.of(Change::added), 40);
  EXPECT_EQ(found.alike, 40);
}

TEST(Compare, ComparesTheSharedCasesOfDifferentFiles) {
  std::mt19937 random(7);
  std::vector<Made> before = night(random), after = before;
  after.resize(290);
  after.push_back({"mine/new", "new", ""});
  store::sample::TemporaryDirectory folder;
  const store::RunReader a = stored(folder.path() / "a", before, "seeds+a.yaml"),
                         b = stored(folder.path() / "b", after, "seeds+b.yaml");
  const Comparison found = compare(a, b);
  EXPECT_EQ(found.alike, 290);
  EXPECT_EQ(found.of(Change::vanished), 10);
  EXPECT_EQ(found.of(Change::added), 1);
  ASSERT_EQ(found.differs.size(), 1u);
  EXPECT_EQ(found.differs[0].before + found.differs[0].after, "seeds+a.yamlseeds+b.yaml");
  EXPECT_THROW(compare(stored(folder.path() / "c", {{"mine/one", "one", ""}}, "c.yaml"), b), store::Error);
}

TEST(Compare, CountsNoOptionalSkipAsLost) {
  std::mt19937 random(8);
  std::vector<Made> before = night(random), after = before;
  for (std::size_t i = 0; i < 20; ++i) after[i].outcome = Outcome::skipped, after[i].optional = i >= 3;
  const Comparison found = compared(before, after);
  EXPECT_EQ(found.of(Change::newly_skipped), 20);
  EXPECT_EQ(found.lost, 3);
  expect_prints(found, "20 newly skipped (17 optional)");
}

TEST(Compare, RefusesMalformedMappings) {
  for (const char* wrong : {"engine", "engine=a", "=a:b", "engin=a:b"})
    EXPECT_THROW(mapping_from_text(wrong), kvcts::catalogue::Error) << wrong;
}

}  // namespace
}  // namespace kvcts::report
