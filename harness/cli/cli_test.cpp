// Parts of the program that need no run: words, selections as text, drawings, questions to child processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "case/catalogue/scenario_table.hpp"
#include "case/outcome.hpp"
#include "cli/child.hpp"
#include "cli/drawing.hpp"
#include "cli/exit.hpp"
#include "cli/provenance.hpp"
#include "cli/scenario_text.hpp"
#include "cli/selection.hpp"
#include "cli/slurm/nodes.hpp"
#include "cli/verb.hpp"
#include "cli/words.hpp"
#include "layout/template.hpp"
#include "run/store/testing/sample.hpp"
#include "testing/checkout.hpp"

namespace kvcts::cli {
namespace {

TEST(Slurm, CountsWorkersByAllocatedCores) {
  const auto places = [](const char* cores, int jobs) { return slurm::share(slurm::nodes_of(cores, "", jobs), "").places; };
  EXPECT_EQ(places("2(x3),4", 1), 10);
  EXPECT_EQ(places("2(x3),4", 4), 4);  // a node with fewer cores than --jobs takes one step all the same
  EXPECT_EQ(places("", 1), 1);
  EXPECT_EQ(places("x(,", 2), 1);
}

TEST(Slurm, ConstrainsNodesByDistinguishingFeatures) {
  const std::string shown =
      "NodeName=a AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null)\n"
      "NodeName=b AvailableFeatures=gpu,ib ActiveFeatures=gpu,ib Gres=(null)\n"
      "NodeName=c AvailableFeatures=gpu,sm_90,ib ActiveFeatures=gpu,sm_90 Gres=(null)\n";
  const std::vector<slurm::SlurmNode> nodes = slurm::nodes_of("2(x2),8", shown, 2);
  EXPECT_EQ(slurm::constraint(nodes, {"cuda", "gpu"}), "gpu");
  EXPECT_EQ(slurm::constraint(nodes, {"cuda", "gpu", "sm_90"}), "sm_90");
  EXPECT_EQ(slurm::constraint(nodes, {"ib"}), "ib");
  EXPECT_EQ(slurm::constraint(nodes, {"rdma", "sm_9"}), "");
  EXPECT_EQ(std::pair(slurm::share(nodes, "gpu").nodes, slurm::share(nodes, "gpu").places), std::pair(2, 5));
  const auto every = slurm::nodes_of("2", "NodeName=b ActiveFeatures=gpu Gres=(null)\n", 1);
  EXPECT_EQ(slurm::constraint(every, {"gpu"}), "");
  EXPECT_EQ(slurm::constraint(slurm::nodes_of("2(x2)", "slurm_load_node error: no answer\n", 1), {"gpu"}), "");
}

TEST(Words, ExplainEveryTermOfTheSuite) {
  std::set<std::string> known;
  for (const Word& w : words()) {
    EXPECT_FALSE(w.meaning.empty()) << w.name;
    EXPECT_TRUE(known.insert(w.kind + "/" + w.name).second) << w.name << " is explained twice";
  }
  for (int i = 0; i < outcome_count; ++i)
    EXPECT_TRUE(known.contains("outcome/" + std::string(name(static_cast<Outcome>(i)))));
  for (int i = 0; i < verdict_count; ++i)
    EXPECT_TRUE(known.contains("verdict/" + std::string(name(static_cast<Verdict>(i)))));
  for (int i = 0; i < phase_count; ++i) EXPECT_TRUE(known.contains("phase/" + std::string(name(static_cast<Phase>(i)))));
  for (const FaultClass c : fault_classes()) EXPECT_TRUE(known.contains("fault class/" + std::string(name(c))));
}

TEST(Verbs, NamesAreUniqueAndDescribed) {
  std::set<std::string> names;
  for (const Verb& verb : verbs()) {
    EXPECT_TRUE(names.insert(verb.title()).second) << verb.title();
    const bool fresh = verb.former.empty() || names.insert(std::string(verb.former)).second;
    EXPECT_TRUE(fresh) << verb.former;
    EXPECT_FALSE(verb.summary.empty() || verb.example.empty() || verb.statuses.empty()) << verb.title();
    EXPECT_TRUE(verb.mode.empty() || verb.mode.starts_with("--")) << verb.title();
  }
}

TEST(Selection, TextReadsBackAsTheSameSelection) {
  SelectOptions o;
  o.suites = {"smoke", "it's"};
  o.ids = {"kv/producer=a b/*", "x'y\"z", "back\\slash", "--looks-like-a-flag"};
  o.where = "dtype==bf16 && engine!='shm'";
  o.shard = "2/8";
  o.shard_times = "/somewhere/rotation.json";
  o.failed = "/somewhere/last night";
  o.cover = 3;
  o.budget = 1.5;
  o.files = {"/somewhere/with blank/case.yaml"};
  const SelectOptions back = selection_from_text(to_text(o));
  EXPECT_EQ(back.suites, o.suites);
  EXPECT_EQ(back.where, o.where);
  EXPECT_EQ(back.failed, o.failed);
  EXPECT_EQ(back.shard, o.shard);
  EXPECT_EQ(back.shard_times, o.shard_times);
  EXPECT_EQ(back.cover, o.cover);
  EXPECT_EQ(back.budget, o.budget);
  EXPECT_EQ(back.files, o.files);
  EXPECT_EQ(back.ids, o.ids);
}

TEST(Selection, RefusesInvalidShards) {
  const auto query = [](const char* shard) {
    SelectOptions o;
    o.shard = shard;
    return query_of(o);
  };
  EXPECT_EQ(query("2/8").shard, 2);
  EXPECT_EQ(query("2/8").shards, 8);
  for (const char* wrong : {"0/8", "9/8", "2", "/8", "2/", "a/b", "1/0", "-1/2", "2/8x", "99999999999/2"})
    EXPECT_THROW(query(wrong), UsageError) << wrong;
}

TEST(Selection, ReadsAShardFromAFile) {
  const store::sample::TemporaryDirectory folder;
  SelectOptions o;
  o.suites = {"smoke"};
  const catalogue::Catalogue cat(checkout::source() + "/cases");
  const matrix::Selection whole = matrix::select(cat, query_of(o));
  matrix::SelectionGroup every{{}, 3};
  for (std::size_t i = 0; i < whole.size(); ++i) every.cases.push_back(i);
  write_shards(matrix::parts_of(whole, {every}, {}), folder.path());
  o.shard = "2/3";
  const matrix::Selection by_hash = matrix::select(cat, query_of(o));
  o.shard = (folder.path() / "2.shard").string();
  EXPECT_EQ(selection_from_text(to_text(o)).shard, o.shard);
  const matrix::Query read = query_of(o);
  EXPECT_EQ(std::pair(read.shard, read.shards), std::pair(2, 3));
  EXPECT_EQ(matrix::select(cat, read).places(), by_hash.places());
  std::ofstream(o.shard) << "{}";
  EXPECT_THROW(query_of(o), UsageError);
  o.shard = "nowhere.shard";
  EXPECT_THROW(query_of(o), UsageError);
}

/// A run of these results, or of one case that nothing has decided.
std::string stored_run(const std::filesystem::path& folder, const std::vector<CaseResult>& results) {
  store::RunInfo info = store::sample::info();
  info.selection = "--suite smoke --where 'dtype == bf16'";
  info.repro = {{"files", {"/somewhere/case.yaml"}}};
  auto store = store::RunStore::create(folder, info, {"kvcts", "run"});
  store.plan(results.empty() ? store::sample::plan(1) : store::sample::plan_for(results));
  for (const CaseResult& result : results) store.record(result);
  store.finish(store::Ending::complete, "");
  return folder.string();
}

TEST(Selection, FailedSelectsCasesThatRanAndEndedUnexpectedly) {
  const store::sample::TemporaryDirectory folder;
  SelectOptions o;
  o.failed = stored_run(folder.path() / "mixed", store::sample::every_kind());
  const matrix::Query query = query_of(o);
  std::set<std::string> expected;
  for (const CaseResult& r : store::sample::every_kind()) {
    const bool wrong = store::is_failure(r.verdict) || r.verdict == Verdict::error || r.outcome == Outcome::error;
    if (wrong && r.outcome != Outcome::skipped && r.outcome != Outcome::not_run) expected.insert(r.id);
  }
  EXPECT_GT(expected.size(), 5u);
  EXPECT_TRUE(expected.contains("every/flaky"));
  EXPECT_EQ(std::set(query.failed.ids.begin(), query.failed.ids.end()), expected);
  EXPECT_EQ(query.suites, std::vector<std::string>{"smoke"});
  EXPECT_EQ(query.files, std::vector<std::filesystem::path>{"/somewhere/case.yaml"});
  EXPECT_TRUE(query.failed.anywhere && query.where.empty());
  EXPECT_EQ(short_name(o), "failed in mixed");
  o.suites = {"seeds"};
  EXPECT_EQ(query_of(o).suites, o.suites);
  EXPECT_FALSE(query_of(o).failed.anywhere);
  o.failed = stored_run(folder.path() / "undecided", {});
  EXPECT_THROW(query_of(o), NothingSelected);
  o.failed = (folder.path() / "nowhere").string();
  EXPECT_THROW(query_of(o), UsageError);
}

layout::Cache small_nhd() {
  layout::Geometry g;
  g.layers = 1;
  g.blocks = 2;
  g.block_size = 2;
  g.heads = 2;
  g.head_dim = 4;
  g.kv = 1;
  return layout::instantiate("L x B N H { C ; pad 8 }", g, {"fp16", layout::Dtype::fp16, {}, {}});
}

TEST(Drawing, ModesShowExtentAndStep) {
  EXPECT_EQ(draw_modes(small_nhd().planes.front()),
            "block x 2                    every 64 bytes\n"
            "  slot x 2                   every 32 bytes\n"
            "    head x 2                 every 16 bytes\n"
            "      channel x 4            every 2 bytes\n"
            "        2 bytes of fp16\n");
}

TEST(Drawing, BytesShowRunsAndPadding) {
  EXPECT_EQ(draw_bytes(small_nhd(), 0, 3),
            "         0 .. 8          layer 0 K block 0 slot 0 head 0 channel 0..3\n"
            "         8 .. 16         padding\n"
            "        16 .. 24         layer 0 K block 0 slot 0 head 1 channel 0..3\n"
            "        24 .. 128        and so on\n");
}

TEST(Scenario, StepsShowTheIntentionAndTheDifference) {
  const auto scenario = catalogue::scenario_from_yaml(R"(
memory:
  P: {side: producer, rank: 1, bytes: 4096}
  S: {side: staging, of: P, offset: 64}
requests:
  A: {tokens: 8, blocks: {P: [3, 0]}}
steps:
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: {of: S, layout: x}, kv: K, actually: {from: {align: 256}, to: {layout: y}, kv: null}}
  - check: {name: middle, actually: skipped}
  - nothing: {actually: [{copy: {from: P, to: S, bytes: 4}}, {write: {request: A, to: P}}]}
)");
  EXPECT_EQ(scenario_lines(scenario), (std::vector<std::string>{
                                          "memory    P: producer rank 1, 4,096 bytes",
                                          "memory    S: staging, bytes of P + 64, 0 bytes",
                                          "request   A: 8 tokens, generation 1, P [3 0]",
                                          "steps",
                                          "  write1    write request: A, to: P",
                                          "  move2     move request: A, from: P, to: {of: S, layout: x}, kv: [K]",
                                          "            actually: from: {align: 256}, to: {layout: y}, kv: null",
                                          "  middle    check",
                                          "            actually: skipped",
                                          "  nothing4  nothing",
                                          "            actually: copy from: P, to: S, bytes: 4",
                                          "            actually: write request: A, to: P",
                                      }));
}

TEST(Child, ReturnsTheAnswer) {
  const auto answer = ask_child([] { return nlohmann::json{{"n", 7}}; }, std::chrono::seconds(10));
  ASSERT_TRUE(answer.ok) << answer.error;
  EXPECT_EQ(answer.value["n"], 7);
}

TEST(Child, ReportsHowItFailed) {
  const auto ask = [](std::function<nlohmann::json()> q) { return ask_child(q, std::chrono::milliseconds(500)).error; };
  EXPECT_EQ(ask([]() -> nlohmann::json { throw std::runtime_error("no such thing"); }), "no such thing");
  EXPECT_EQ(ask([]() -> nlohmann::json { _exit(5); }), "ended with status 5 and no answer");
  EXPECT_EQ(ask([]() -> nlohmann::json {
              ::signal(SIGTERM, SIG_DFL);
              raise(SIGTERM);
              return {};
            }),
            "ended by SIGTERM");
  EXPECT_EQ(ask([]() -> nlohmann::json {
              for (;;) pause();
            }),
            "no answer within 500 ms");
}

TEST(Provenance, IdentifiesCiJobsByTheirVariables) {
  using Variables = std::map<std::string, std::string>;
  const auto job = [](const Variables& variables) {
    return ci_job([&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_TRUE(job({}).is_null());
  EXPECT_TRUE(job({{"CI", "false"}}).is_null());
  EXPECT_EQ(job({{"CI", "true"}}), (nlohmann::json{{"system", "unknown"}}));
  EXPECT_EQ(
      job({{"CI", "true"},
           {"GITHUB_ACTIONS", "true"},
           {"GITHUB_SERVER_URL", "https://h"},
           {"GITHUB_REPOSITORY", "o/r"},
           {"GITHUB_RUN_ID", "7"},
           {"GITHUB_WORKFLOW", "nightly"},
           {"GITHUB_JOB", "kv"},
           {"GITHUB_SHA", "abc"}}),
      (nlohmann::json{
          {"system", "GitHub Actions"}, {"job", "nightly/kv"}, {"url", "https://h/o/r/actions/runs/7"}, {"commit", "abc"}}));
  EXPECT_EQ(job({{"GITLAB_CI", "true"}, {"CI_JOB_NAME", "kv"}, {"CI_JOB_URL", "https://g/1"}, {"CI_COMMIT_SHA", "d"}}),
            (nlohmann::json{{"system", "GitLab CI"}, {"job", "kv"}, {"url", "https://g/1"}, {"commit", "d"}}));
  EXPECT_EQ(job({{"JENKINS_URL", "https://j"}, {"JOB_NAME", "kv"}, {"BUILD_URL", "https://j/kv/3"}}),
            (nlohmann::json{{"system", "Jenkins"}, {"job", "kv"}, {"url", "https://j/kv/3"}}));
  EXPECT_EQ(job({{"BUILDKITE", "true"}, {"BUILDKITE_BUILD_URL", "https://b/1"}})["url"], "https://b/1");
  EXPECT_EQ(job({{"TF_BUILD", "True"},
                 {"BUILD_BUILDID", "4"},
                 {"SYSTEM_TEAMFOUNDATIONCOLLECTIONURI", "https://a/"},
                 {"SYSTEM_TEAMPROJECT", "p"}})["url"],
            "https://a/p/_build/results?buildId=4");
}

TEST(Provenance, DigestsTheNamesAndContentsOfAFolder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "kvcts provenance";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "a");
  std::ofstream(folder / "a" / "x.yaml") << "one";
  const std::string one = digest_of_folder(folder);
  EXPECT_EQ(one.size(), 32u);
  EXPECT_EQ(digest_of_folder(folder), one);
  std::ofstream(folder / "a" / "x.yaml") << "two";
  const std::string two = digest_of_folder(folder);
  EXPECT_NE(two, one);
  std::filesystem::rename(folder / "a" / "x.yaml", folder / "a" / "y.yaml");
  const std::string three = digest_of_folder(folder);
  EXPECT_NE(three, two);
  std::ofstream(folder / "README.md") << "no data";
  EXPECT_EQ(digest_of_folder(folder), three);
  EXPECT_EQ(digest_of_folder(folder / "nothing"), "");
}

TEST(Provenance, RecordsTheCommitAndBuildOfTheProgram) {
  const nlohmann::json found = provenance(checkout::source() + "/cases", checkout::source() + "/golden");
  EXPECT_FALSE(found.at("commit").get<std::string>().empty());
  for (const char* key : {"cases", "golden"}) EXPECT_EQ(found.at(key).get<std::string>().size(), 32u) << key;
  EXPECT_FALSE(found.at("host").get<std::string>().empty());
}

}  // namespace
}  // namespace kvcts::cli
