// The files of a run, read back by other people's parsers (check_reports.py): every outcome, every id, nothing hostile gets
// through.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "cli/report/summary.hpp"
#include "cli/report/template.hpp"
#include "cli/report/text.hpp"
#include "cli/report/write.hpp"
#include "run/store/testing/sample.hpp"
#include "testing/checkout.hpp"

namespace kvcts::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using store::Ending;
using store::RunStore;
namespace sample = store::sample;

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

json checked(const fs::path& directory) {
  const std::string command = shell_word(checkout::source() + "/harness/python/python") + " " +
                              shell_word(checkout::source() + "/harness/cli/report/check_reports.py") + " " +
                              shell_word(directory.string()) + " " +
                              shell_word(checkout::source() + "/reports/schema/results.schema.json");
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char buffer[65536];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, got);
  EXPECT_EQ(::pclose(pipe), 0) << "a report does not parse";
  return json::parse(text);
}

// One case of every outcome and verdict, one that was not run, one declared not to be run.
class EveryKind : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<sample::TemporaryDirectory>();
    const auto results = sample::every_kind();
    auto plan = sample::plan_for(results);
    plan.push_back({"every/absent", "d", "x", {}});
    plan.push_back({"every/left out", "d", "y", {Expected{Outcome::not_run, FaultClass::none, std::nullopt, ""}}});
    plan[3].expected = {Expected{Outcome::refused, FaultClass::rank_mismatch, Phase::registration, "expected 5"}};
    auto store = RunStore::create(dir_->path(), sample::info(), {"kvcts", "run", "-e", "a b'c"});
    store.plan(plan);
    for (const auto& r : results) store.record(r);
    store.finish(Ending::complete);
    const auto reader = store::RunReader::open(dir_->path());
    view_ = std::make_unique<RunView>(load(reader));
    files_ = write_reports(reader, *view_, dir_->path());
    checked_ = checked(dir_->path());
  }
  static void TearDownTestSuite() {
    dir_.reset();
    view_.reset();
  }
  static json junit_case(const std::string& id) {
    const auto& list = checked_["junit"]["cases"].at(id);
    EXPECT_EQ(list.size(), 1u) << id;
    EXPECT_LE(list[0]["children"].get<int>(), 1) << id;
    return list[0];
  }

  static std::unique_ptr<sample::TemporaryDirectory> dir_;
  static std::unique_ptr<RunView> view_;
  static Files files_;
  static json checked_;
};
std::unique_ptr<sample::TemporaryDirectory> EveryKind::dir_;
std::unique_ptr<RunView> EveryKind::view_;
Files EveryKind::files_;
json EveryKind::checked_;

TEST_F(EveryKind, JunitIsAcceptedByJenkins) {
  EXPECT_TRUE(checked_["junit"]["refused"].is_null()) << checked_["junit"]["refused"];
}

TEST_F(EveryKind, JunitRecordsProvenance) {
  const json& found = checked_["junit"]["properties"];
  for (const char* key : {"commit", "cases", "golden", "host"}) EXPECT_EQ(found[key], sample::info().provenance[key]) << key;
  EXPECT_EQ(found["ci_system"], "GitLab CI");
}

TEST_F(EveryKind, JunitDescribesEachOutcome) {
  const auto kind = [&](const std::string& id) { return junit_case(id)["kind"].get<std::string>(); };
  EXPECT_EQ(kind("every/pass"), "passed");
  EXPECT_EQ(kind("every/refused"), "passed");
  EXPECT_EQ(kind("every/fail again"), "failure");
  EXPECT_EQ(kind("every/fail <&>'\"`$"), "failure");
  EXPECT_EQ(junit_case("every/hang")["properties"]["failure_type"], "hang");
  EXPECT_EQ(kind("every/hang"), "failure");
  EXPECT_EQ(junit_case("every/crash")["properties"]["failure_type"], "crash");
  EXPECT_EQ(junit_case("every/crash")["properties"]["signal"], "SIGSEGV");
  EXPECT_EQ(kind("every/error"), "error");
  EXPECT_EQ(kind("every/expired"), "failure");
  EXPECT_EQ(kind("every/flaky"), "failure") << "a pass of some tries is no pass";
  EXPECT_EQ(junit_case("every/flaky")["reruns"], json::array({"flakyFailure", "flakyFailure"}));
  EXPECT_EQ(junit_case("every/always")["reruns"], json::array({"rerunFailure", "rerunFailure"}))
      << "the first failure is the <failure>";
  EXPECT_EQ(kind("every/xpass"), "passed");
  EXPECT_EQ(kind("every/absent"), "failure") << "planned and absent";
  for (const auto& [id, reason] : std::map<std::string, std::string>{{"every/unsupported", "fp8 conversion needs sm_89"},
                                                                     {"every/skipped", "no GPU on this machine"},
                                                                     {"every/not_run", "budget of 60 s used up"},
                                                                     {"every/xfail", "mooncake-lbhnc"},
                                                                     {"every/left out", "declared not to be run"}}) {
    EXPECT_EQ(kind(id), "skipped") << id;
    EXPECT_TRUE(has(junit_case(id)["message"], reason)) << junit_case(id).dump();
  }
}

TEST_F(EveryKind, JunitTotalsMatchTheCases) {
  std::map<std::string, int> kinds;
  for (const auto& [id, list] : checked_["junit"]["cases"].items()) ++kinds[list[0]["kind"]];
  const auto& figures = checked_["junit"]["figures"];
  EXPECT_EQ(figures["tests"], checked_["junit"]["cases"].size());
  EXPECT_EQ(figures["failures"], kinds["failure"]);
  EXPECT_EQ(figures["errors"], kinds["error"]);
  EXPECT_EQ(figures["skipped"], kinds["skipped"]);
  EXPECT_EQ(kinds["failure"], store::failures(view_->counts)) << "JUnit and the exit status count alike";
}

TEST_F(EveryKind, ControlCharactersAreEscaped) {
  EXPECT_TRUE(has(junit_case("every/fail again")["message"], "\\x1b[31mred\\x07 nul:\\x00 broken:"));
  EXPECT_EQ(checked_["html"]["controls"], 0);
  EXPECT_FALSE(has(contents(files_.html), "<b>not bold"));
  EXPECT_FALSE(has(contents(files_.html), "\xe2\x80\xae")) << "direction override";
  EXPECT_TRUE(has(contents(files_.html), "caf\xc3\xa9")) << "and what is harmless stays";
}

TEST_F(EveryKind, HtmlIsSelfContainedWithUniqueIds) {
  std::vector<std::string> ids;
  for (const auto& row : checked_["html"]["rows"]) {
    ASSERT_EQ(row.size(), 5u) << row.dump();
    ids.push_back(row[0]);
  }
  std::vector<std::string> planned;
  store::RunReader::open(dir_->path()).for_each([&](const store::Row& row) { planned.push_back(row.planned.id); });
  EXPECT_EQ(ids, planned);
  EXPECT_EQ(checked_["html"]["links_out"], json::array());
  EXPECT_EQ(checked_["html"]["problems"], json::array());
  const std::string page = contents(files_.html);
  EXPECT_FALSE(has(page, "http:"));
  EXPECT_FALSE(has(page, "https:"));
  EXPECT_TRUE(has(page, "</span> The suite itself failed in 1 of"));
  EXPECT_TRUE(has(page, escaped(Repro{}.line("every/fail <&>'\"`$"))));
  EXPECT_TRUE(has(page, "ran on the CPU instead of that architecture"));
  EXPECT_TRUE(has(page, "guard below"));
  EXPECT_TRUE(has(page, "a CPU of 4 cores"));
  EXPECT_TRUE(has(page, "<title>The suite itself failed in 1 of 17 cases - sample - KV-CTS</title>"));
  EXPECT_TRUE(has(page, "FAIL <a href=\"#class-axis-permuted\">axis-permuted</a> at compare"));
  EXPECT_TRUE(has(page, "<dt id=\"class-axis-permuted\">axis-permuted</dt><dd>" +
                            escaped(std::string(meaning(FaultClass::axis_permuted)) + " " +
                                    std::string(advice(FaultClass::axis_permuted)))));
}

TEST(Page, ShowsTheVerdictInItsTitleAndOmitsAnUnsetSeed) {
  for (const bool bad : {false, true}) {
    sample::TemporaryDirectory dir;
    auto info = sample::info();
    if (!bad) info.seed = 0;
    auto store = RunStore::create(dir.path(), info, {});
    const auto plan = sample::plan(312);
    store.plan(plan);
    for (std::size_t n = 0; n < plan.size(); ++n) {
      auto r = sample::passed(plan[n]);
      if (bad && n < 3) r.outcome = Outcome::fail, r.verdict = Verdict::unexpected;
      store.record(r);
    }
    store.finish(Ending::complete);
    const auto reader = store::RunReader::open(dir.path());
    const std::string page = contents(write_reports(reader, load(reader), dir.path()).html);
    EXPECT_TRUE(has(page, bad ? "<title>3 of 312 failed - sample - KV-CTS" : "<title>all passed - sample - KV-CTS"));
    EXPECT_TRUE(has(page, bad ? "\nseed 18446744073709551600.</p>" : "\neach case&#39;s own seed.</p>"));
  }
}

TEST_F(EveryKind, JsonValidatesAgainstItsSchema) {
  if (checked_["schema"] == "no jsonschema") GTEST_SKIP() << "python3 has no jsonschema (Debian: python3-jsonschema)";
  EXPECT_EQ(checked_["schema"], "valid");
}

// The published schema and the writer name the same keys, jsonschema or not.
TEST_F(EveryKind, JsonKeysMatchTheSchema) {
  const json schema = json::parse(contents(checkout::source() + "/reports/schema/results.schema.json"));
  const json results = json::parse(contents(files_.json));
  const auto same_keys = [](const json& value, const json& rule, const std::string& where) {
    for (const auto& [key, ignored] : value.items()) EXPECT_TRUE(rule["properties"].contains(key)) << where << "." << key;
    for (const auto& key : rule["required"]) EXPECT_TRUE(value.contains(key.get<std::string>())) << where << "." << key;
  };
  same_keys(results, schema, "$");
  for (const auto* key : {"run", "counts"}) same_keys(results[key], schema["properties"][key], key);
  std::set<std::string> outcomes, ids;
  for (const auto& result : results["results"]) {
    same_keys(result, schema["$defs"]["result"], result["id"]);
    outcomes.insert(result["outcome"]);
    EXPECT_TRUE(ids.insert(result["id"]).second);
  }
  EXPECT_EQ(outcomes.size(), static_cast<std::size_t>(outcome_count));
  EXPECT_EQ(ids.size(), results["counts"]["planned"]);
  json wrong = results;
  wrong["results"][0]["outcom"] = "PASS";
  sample::TemporaryDirectory other;
  std::ofstream(other.path() / "results.json") << wrong.dump();
  for (const auto& file : {files_.html, files_.junit}) fs::copy(file, other.path() / file.filename());
  const json judged = checked(other.path());
  EXPECT_NE(judged["schema"], "valid") << "a key that the schema does not know passes";
}

TEST_F(EveryKind, FailuresAreGroupedByCause) {
  const auto& failed = view_->of(Section::failed);
  ASSERT_FALSE(failed.empty());
  EXPECT_EQ(failed[0].title, "FAIL axis-permuted at compare");
  EXPECT_EQ(failed[0].count, 2) << "31,744 of 65,536 and 128 of 512 wrong bytes are one cause";
  EXPECT_TRUE(has(failed[0].message, "e.g. 31,744 of 65,536 bytes are wrong")) << failed[0].message;
  EXPECT_EQ(failed[0].check, "compare the declared axis order with the strides");
  std::set<std::string> titles;
  for (const auto& cause : failed) titles.insert(cause.title);
  EXPECT_EQ(titles, (std::set<std::string>{"FAIL axis-permuted at compare", "HANG stalled hang-transfer at complete",
                                           "CRASH SIGSEGV at transfer", "FAIL at compare", "FLAKY SIGBUS at transfer",
                                           "FAIL", "NOT_RUN"}));
  EXPECT_EQ(view_->of(Section::suite_error).size(), 1u);
  EXPECT_EQ(view_->exit_status, 3);
}

TEST_F(EveryKind, SummaryNamesCausesReasonsAndTheVerdict) {
  std::ostringstream out;
  print_summary(out, *view_, Terminal{});
  const std::string text = out.str();
  for (const auto& part :
       {std::string("1. FAIL axis-permuted at compare (2 cases)"), Repro{}.line("every/hang"), Repro{}.line("every/absent"),
        Repro{}.line("every/flaky", {14}), Repro{}.line("every/fail <&>'\"`$"), std::string("1 x no GPU on this machine"),
        std::string("1 x fp8 conversion needs sm_89"), std::string("[waiver mooncake-lbhnc]"),
        std::string("expired waiver old-waiver"), std::string("next: Check who must make progress"),
        std::string("executed   1 case in 1 unique execution")}) {
    EXPECT_TRUE(has(text, part)) << part << "\nin\n" << text;
  }
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << "no colour was asked for";
  EXPECT_EQ(text.find('\0'), std::string::npos);
  EXPECT_TRUE(text.ends_with("sample: " + view_->headline + "\n")) << text;
  std::ostringstream coloured;
  print_summary(coloured, *view_, Terminal{false, true, 80});
  EXPECT_TRUE(has(coloured.str(), "\x1b[1;31m"));
}

// ---- other runs ------------------------------------------------------------------------------------------------------

TEST(Headline, StatesTheVerdict) {
  store::Counts c;
  EXPECT_EQ(headline(c), "No case was selected");
  c.planned = c.decided = 1312;
  c.verdict[static_cast<int>(Verdict::as_expected)] = 1300;
  c.verdict[static_cast<int>(Verdict::skipped)] = c.outcome[static_cast<int>(Outcome::skipped)] = 12;
  EXPECT_EQ(headline(c), "Incomplete (99 % run): 1,300 of 1,312 cases ended as expected; 12 skipped");
  c.lacks = {{"nixl-1.5.1", true, 8}, {"gpu", false, 4}};
  EXPECT_EQ(headline(c),
            "Incomplete (99 % run): 1,300 of 1,312 cases ended as expected; 12 skipped: 8 nixl-1.5.1 (optional), 4 gpu");
  c.lacks = {{"nixl-1.5.1", true, 12}};
  EXPECT_EQ(headline(c), "All 1,300 cases ended as expected; 12 skipped: 12 nixl-1.5.1 (optional)");
  c.left_out = 40;
  EXPECT_EQ(headline(c), "All 1,300 cases ended as expected; 12 skipped: 12 nixl-1.5.1 (optional); 40 left out by --budget");
  c.not_isolated = "bubblewrap is not installed";
  EXPECT_EQ(headline(c),
            "All 1,300 cases ended as expected; 12 skipped: 12 nixl-1.5.1 (optional); 40 left out by --budget; not isolated "
            "(bubblewrap is not installed)");
  c.not_isolated = "";
  c.left_out = 0;
  c.verdict[static_cast<int>(Verdict::unexpected)] = 2;
  c.missing = 1;
  c.verdict[static_cast<int>(Verdict::not_run)] = c.outcome[static_cast<int>(Outcome::not_run)] = 1;
  EXPECT_EQ(headline(c),
            "3 of 1,312 cases did not end as expected; incomplete (99 % run); 12 skipped: 12 nixl-1.5.1 (optional)");
  c.interrupted = true;
  EXPECT_EQ(headline(c),
            "Interrupted after 1,312 of 1,312 cases; 3 did not end as expected; 12 skipped: 12 nixl-1.5.1 (optional)");
}

TEST(Report, CoversARunThatNeverPlanned) {
  sample::TemporaryDirectory dir;
  RunStore::create(dir.path(), sample::info(), {});
  const auto reader = store::RunReader::open(dir.path());
  const auto view = load(reader);
  EXPECT_EQ(view.exit_status, 4);
  write_reports(reader, view, dir.path());
  const json got = checked(dir.path());
  EXPECT_EQ(got["junit"]["figures"]["tests"], 0);
  EXPECT_EQ(got["html"]["problems"], json::array());
  EXPECT_NE(got["schema"], json(nullptr));
}

struct Failure {
  FaultClass fault_class;
  Finding finding;
};

/// A run in which every fourth case fails, with one of `failures` each.
store::RunReader run_with(const std::vector<Failure>& failures, const std::filesystem::path& folder) {
  auto store = RunStore::create(folder, sample::info(), {});
  const auto plan = sample::plan(static_cast<int>(failures.size()) * 4);
  store.plan(plan);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    auto r = sample::passed(plan[i]);
    if (i % 4 == 0) {
      r.outcome = Outcome::fail, r.verdict = Verdict::unexpected, r.phase = Phase::compare;
      r.diagnosis.fault_class = failures[i / 4].fault_class;
      r.what_happened = {failures[i / 4].finding};
      r.message = r.what_happened[0].text;
    }
    store.record(r);
  }
  store.finish(Ending::complete);
  return store::RunReader::open(folder);
}

// One engine fault, four classes: what fits all of them is the cause. A fault without such a rule keeps its own.
TEST(Report, GroupsFailuresThatShareOneRule) {
  const std::string odd = "every piece of an odd length is 1 byte short", shorter = "every shorter piece is 1 byte short";
  sample::TemporaryDirectory dir;
  const auto reader =
      run_with({{FaultClass::layer_missing, {"consumer, V: not written", 8, false, "not written by K/V", {odd}}},
                {FaultClass::truncated, {"consumer: " + odd, 8, false, "", {odd, shorter}}},
                {FaultClass::none, {"consumer: " + odd, 3, false, "", {odd}}},
                {FaultClass::false_success, {"consumer: " + shorter, 5, false, "", {shorter, odd}}},
                {FaultClass::layer_missing, {"consumer, layer 1: not written", 8, false, "not written by layer", {}}},
                {FaultClass::layer_missing, {"consumer, layers 2..3: not written", 64, false, "not written by layer", {}}},
                {FaultClass::layer_missing, {"consumer, K: not written", 64, false, "not written by K/V", {}}}},
               dir.path());
  const auto view = load(reader);
  std::vector<std::string> causes;
  for (const Cause& cause : view.of(Section::failed)) causes.push_back(cause.title + ": " + cause.message);
  EXPECT_EQ(causes, (std::vector<std::string>{"FAIL at compare: e.g. consumer: " + odd,
                                              "FAIL layer-missing at compare: e.g. consumer, layer 1: not written",
                                              "FAIL layer-missing at compare: consumer, K: not written"}));
  const Cause& first = view.of(Section::failed)[0];
  EXPECT_EQ(first.count, 4);
  EXPECT_TRUE(has(first.check, "length, the alignment and the order")) << first.check;
  const std::string of_first = sample::planned(0).id, of_last = sample::planned(24).id;
  reader.for_each([&](const store::Row& row) {
    if (row.planned.id == of_first || row.planned.id == of_last) {
      EXPECT_EQ(view.cause_of(row), row.planned.id == of_first ? 1u : 3u);
    }
  });
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// 10,000 cases, a tenth of them failing with evidence: the page stays small and complete, all reports are quick.
TEST(Report, HandlesTenThousandCases) {
  constexpr int cases = 10000;
  sample::TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  auto plan = sample::plan(cases);
  for (auto& c : plan) c.id = "vllm-0.33.0-flash_attn-nhd/vllm-0.33.0-flashinfer-hnd/ucx-tcp/heterogeneous-tp/" + c.id;
  store.plan(plan);
  for (int n = 0; n < cases; ++n) {
    auto r = sample::passed(plan[static_cast<std::size_t>(n)]);
    if (n % 10 == 0) {
      r.outcome = Outcome::fail;
      r.verdict = Verdict::unexpected;
      r.phase = Phase::compare;
      r.message = "cause number " + std::string(static_cast<std::size_t>(n / 10 % 40 + 1), 'x') + std::string(200, 'm');
      r.what_happened = {{"", 1, false, r.message}};
      r.evidence_files = {{"stdout", std::string(20000, 'e')}};
    }
    store.record(r);
  }
  store.finish(Ending::complete);
  const double before = cpu_seconds();
  const auto reader = store::RunReader::open(dir.path());
  const auto view = load(reader);
  const auto files = write_reports(reader, view, dir.path());
  const double took = cpu_seconds() - before;
  RecordProperty("cpu_ms", static_cast<int>(took * 1000));
  RecordProperty("html_bytes", static_cast<int>(fs::file_size(files.html)));
  std::printf("10,000 cases: %.2f s of CPU, html %.2f MB, json %.2f MB, junit %.2f MB\n", took,
              static_cast<double>(fs::file_size(files.html)) / 1e6, static_cast<double>(fs::file_size(files.json)) / 1e6,
              static_cast<double>(fs::file_size(files.junit)) / 1e6);
  EXPECT_LT(fs::file_size(files.html), 5'000'000u);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(took, 2.0);
#endif
  const json got = checked(dir.path());
  ASSERT_EQ(got["html"]["rows"].size(), static_cast<std::size_t>(cases));
  for (int n = 0; n < cases; ++n)
    ASSERT_EQ(got["html"]["rows"][static_cast<std::size_t>(n)][0], plan[static_cast<std::size_t>(n)].id);
  EXPECT_EQ(got["html"]["problems"], json::array());
  EXPECT_EQ(got["junit"]["figures"]["failures"], cases / 10);
}

// Far too many for a page: passing cases are left out first, and it says so.
TEST(Report, KeepsTheFailuresOfAHugeRunAndCountsTheRest) {
  sample::TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  auto plan = sample::plan(9000);
  // No two begin alike, so that nothing is saved by leaving out what an id shares with the one before.
  for (std::size_t n = 0; n < plan.size(); ++n)
    plan[n].id = std::to_string(n * 7919 % 9000) + std::string(900, 'i') + plan[n].id;
  store.plan(plan);
  for (std::size_t n = 0; n < plan.size(); ++n) {
    auto r = sample::passed(plan[n]);
    if (n % 100 == 99) r.verdict = Verdict::unexpected;
    store.record(r);
  }
  store.finish(Ending::complete);
  const auto reader = store::RunReader::open(dir.path());
  const auto files = write_reports(reader, load(reader), dir.path());
  EXPECT_LT(fs::file_size(files.html), 5'000'000u);
  const json got = checked(dir.path());
  int failures = 0;
  for (const auto& row : got["html"]["rows"]) failures += row[2] == "unexpected" ? 1 : 0;
  EXPECT_EQ(failures, 90);
  EXPECT_LT(got["html"]["rows"].size(), 9000u);
  const auto left_out = 9000 - got["html"]["rows"].size();
  EXPECT_TRUE(
      has(contents(files.html), thousands(static_cast<std::int64_t>(left_out)) + " that ended as others do are left out"));
}

TEST(Report, LeavesNoPartialFileWhenWritingFails) {
  sample::TemporaryDirectory dir;
  auto store = RunStore::create(dir.path() / "run", sample::info(), {});
  store.plan(sample::plan(1));
  store.finish(Ending::complete);
  const auto reader = store::RunReader::open(dir.path() / "run");
  fs::create_directories(dir.path() / "out" / "index.html" / "in the way");
  EXPECT_THROW(write_reports(reader, load(reader), dir.path() / "out"), std::runtime_error);
  for (const auto& entry : fs::directory_iterator(dir.path() / "out")) {
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
  }
  std::ofstream(dir.path() / "file") << "x";
  EXPECT_THROW(write_reports(reader, load(reader), dir.path() / "file"), std::runtime_error);
}

TEST(Template, FillsEveryPlaceholderAndUsesEveryValue) {
  EXPECT_EQ(fill("<i>{{a}}</i>{{{b}}}{{a}}", {{"a", "<&"}, {"b", "<br>"}}), "<i>&lt;&amp;</i><br>&lt;&amp;");
  EXPECT_THROW(fill("{{a}}", {}), std::logic_error);
  EXPECT_THROW(fill("none", {{"a", "x"}}), std::logic_error);
  EXPECT_THROW(fill("{{a", {{"a", "x"}}), std::logic_error);
}

}  // namespace
}  // namespace kvcts::report
