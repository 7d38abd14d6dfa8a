// The store as its one writer and its readers see it: each result once, in order, in groups, resumed, counted.
#include "run/store/store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "run/store/rows.hpp"
#include "run/store/schema.hpp"
#include "run/store/testing/sample.hpp"

namespace kvcts::store {
namespace {

using sample::TemporaryDirectory;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Store, ReturnsWhatWasRecorded) {
  TemporaryDirectory dir;
  const auto results = sample::every_kind();
  {
    auto store = RunStore::create(dir.path(), sample::info(), {"kvcts", "run", "--suite", "sample"});
    EXPECT_FALSE(store.plan(sample::plan_for(results)));
    for (const auto& r : results) store.record(r);
    store.finish(Ending::complete);
  }
  const auto reader = RunReader::open(dir.path());
  const auto back = reader.results();
  ASSERT_EQ(back.size(), results.size());
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(to_json(back[i]), to_json(results[i]));
  EXPECT_EQ(reader.info().seed, sample::info().seed);
  EXPECT_EQ(reader.info().machine, sample::info().machine);
  EXPECT_EQ(reader.info().provenance, sample::info().provenance);
  ASSERT_EQ(reader.sessions().size(), 1u);
  EXPECT_EQ(reader.sessions()[0].argv.at(3), "sample");
  EXPECT_EQ(reader.sessions()[0].ending, Ending::complete);
  EXPECT_EQ(reader.find("every/hang")->result.hang, HangKind::stalled);
  EXPECT_EQ(reader.find("every/nothing"), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "store.db-wal")) << "a finished store is one file";
}

TEST(Store, CountsEachIdOnce) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  store.plan(sample::plan(8));
  store.record(sample::passed(sample::planned(0)));
  const auto again = [&] { store.record(sample::passed(sample::planned(0))); };
  EXPECT_TRUE(has(error_of(again), "has a result already")) << "while waiting";
  store.flush();
  EXPECT_TRUE(has(error_of(again), "has a result already")) << "when committed";
  EXPECT_TRUE(has(error_of([&] { store.record(sample::passed(sample::planned(99))); }), "not a planned case"));
  auto drifted = sample::passed(sample::planned(1));
  drifted.case_digest = "0000";
  EXPECT_TRUE(has(error_of([&] { store.record(drifted); }), "differ from the plan"));
  EXPECT_TRUE(has(error_of([&] {
                    TemporaryDirectory other;
                    RunStore::create(other.path(), sample::info(), {}).plan({sample::planned(0), sample::planned(0)});
                  }),
                  "planned twice"));
  EXPECT_EQ(store.counts().decided, 1);
  EXPECT_EQ(store.reader().results().size(), 1u);
}

TEST(Store, SharesAnExecutionBetweenArchs) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  store.plan(sample::plan(8));
  for (int n = 0; n < 8; ++n) store.record(sample::passed(sample::planned(n)));
  const auto counts = store.counts();
  EXPECT_EQ(counts.ids[static_cast<int>(Evidence::executed)], 2);
  EXPECT_EQ(counts.ids[static_cast<int>(Evidence::modelled)], 6);
  EXPECT_EQ(counts.executions[static_cast<int>(Evidence::executed)], 2);
  EXPECT_EQ(counts.executions[static_cast<int>(Evidence::modelled)], 0);
  const auto rows = store.reader().rows();
  EXPECT_EQ(rows[4].executions, 1);
  EXPECT_EQ(rows[5].executions, 0);
  EXPECT_EQ(rows[5].shared_with, rows[4].planned.id);
  EXPECT_EQ(rows[5].result.facts.at("arch"), "sm_75") << "facts stay with the id";
  EXPECT_EQ(rows[5].result.wall_ns, rows[4].result.wall_ns);
}

TEST(Store, KeepsDifferentResultsOfOneExecution) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  store.plan(sample::plan(4));
  auto first = sample::passed(sample::planned(0)), second = sample::passed(sample::planned(1));
  second.wall_ns += 1;
  store.record(first);
  store.record(second);
  const auto counts = store.counts();
  EXPECT_EQ(counts.executions[0] + counts.executions[2], 2);
  EXPECT_EQ(store.reader().rows()[1].result.wall_ns, second.wall_ns);
}

TEST(Store, CommitsInGroups) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  store.plan(sample::plan(200));
  EXPECT_EQ(store.due_in(), std::nullopt);
  for (int n = 0; n < 63; ++n) store.record(sample::passed(sample::planned(n)));
  EXPECT_EQ(store.waiting(), 63u);
  store.record(sample::passed(sample::planned(63)));
  EXPECT_EQ(store.waiting(), 0u) << "the 64th commits";
  store.record(sample::passed(sample::planned(64)));
  EXPECT_EQ(RunReader::open(dir.path()).counts().decided, 64) << "a reader sees what the writer has committed";
  ASSERT_TRUE(store.due_in());
  EXPECT_LE(store.due_in()->count(), 200);
  std::this_thread::sleep_for(*store.due_in() + std::chrono::milliseconds(5));
  EXPECT_EQ(store.due_in()->count(), 0);
  store.tick();
  EXPECT_EQ(store.waiting(), 0u) << "an old one commits";
  EXPECT_EQ(RunReader::open(dir.path()).counts().decided, 65);
}

TEST(Store, ResumeEndsWithExactlyThePlan) {
  TemporaryDirectory dir;
  {
    auto store = RunStore::create(dir.path(), sample::info(), {"first"});
    store.plan(sample::plan(10));
    for (int n = 9; n > 3; --n) store.record(sample::passed(sample::planned(n)));
    store.finish(Ending::interrupted, "SIGINT");
    EXPECT_TRUE(has(error_of([&] { store.record(sample::passed(sample::planned(0))); }), "finished"));
  }
  EXPECT_EQ(exit_status(RunReader::open(dir.path()).counts()), 130);
  auto store = RunStore::open(dir.path(), {"second"});
  EXPECT_FALSE(store.plan(sample::plan(10)));
  const auto missing = store.missing();
  ASSERT_EQ(missing.size(), 4u);
  EXPECT_EQ(missing[0], sample::planned(0));
  for (const auto& planned : missing) store.record(sample::passed(planned));
  store.finish(Ending::complete);
  const auto counts = store.counts();
  EXPECT_EQ(counts.planned, 10);
  EXPECT_EQ(counts.decided, 10);
  EXPECT_EQ(exit_status(counts), 0);
  EXPECT_EQ(store.reader().sessions().size(), 2u);
}

TEST(Store, ResumeReportsHowThePlanDrifted) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  store.plan(sample::plan(6));
  auto other = sample::plan(8);
  other.erase(other.begin());
  other[1].digest = "other";
  const Drift drift = store.plan(other);
  EXPECT_TRUE(drift);
  EXPECT_EQ(drift.added, 2);
  EXPECT_EQ(drift.removed, 1);
  EXPECT_EQ(drift.changed, 1);
  EXPECT_TRUE(has(drift.text(), sample::planned(0).id)) << drift.text();
  EXPECT_EQ(store.missing().size(), 6u) << "the stored plan is not touched";
}

TEST(Store, TreatsMissingResultsAsFailuresUnlessDeclared) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  auto cases = sample::plan(4);
  cases[3].expected = {Expected{Outcome::not_run, {}, std::nullopt, ""}};
  store.plan(cases);
  store.record(sample::passed(cases[0]));
  EXPECT_EQ(store.counts().missing, 2) << "while at work";
  store.finish(Ending::complete);
  const auto counts = store.counts();
  EXPECT_EQ(counts.missing, 2);
  EXPECT_EQ(counts.of(Outcome::not_run), 3);
  EXPECT_EQ(exit_status(counts), 1);
  const auto rows = store.reader().rows();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_FALSE(rows[1].decided);
  EXPECT_FALSE(rows[1].declared_not_run);
  EXPECT_TRUE(rows[3].declared_not_run);
  auto again = RunStore::open(dir.path(), {});
  again.finish(Ending::budget, "60 s");
  EXPECT_EQ(again.counts().missing, 0);
  EXPECT_EQ(exit_status(again.counts()), 5);
  EXPECT_EQ(again.counts().stopped, "60 s");
  EXPECT_TRUE(has(again.reader().rows()[1].result.message, "60 s"));
}

TEST(Store, AllowsOneWriterAtATime) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  store.plan(sample::plan(2));
  const std::string error = error_of([&] { RunStore::open(dir.path(), {}); });
  EXPECT_TRUE(has(error, "another process")) << error;
  EXPECT_TRUE(has(error, std::to_string(::getpid()))) << error;
  store.finish(Ending::interrupted);
  EXPECT_EQ(RunStore::open(dir.path(), {}).missing().size(), 2u) << "finish() releases the run";
}

TEST(Store, RefusesAnythingButARun) {
  TemporaryDirectory dir;
  EXPECT_TRUE(has(error_of([&] { RunReader::open(dir.path()); }), "not found"));
  EXPECT_TRUE(has(error_of([&] { RunStore::open(dir.path() / "nowhere", {}); }), "no store.db"));
  const auto file = dir.path() / "store.db";
  std::ofstream(file) << "";
  EXPECT_TRUE(has(error_of([&] { RunReader::open(dir.path()); }), "not a KV-CTS run store"));
  std::ofstream(file)
      << "this is some text that is no database, and long enough to have a header of a hundred bytes or more....";
  EXPECT_TRUE(has(error_of([&] { RunReader::open(dir.path()); }), "not a run store"));
  std::filesystem::remove(file);
  {
    Db(file, OpenMode::create).run("CREATE TABLE t(x)");
  }
  EXPECT_TRUE(has(error_of([&] { RunReader::open(dir.path()); }), "not a KV-CTS run store"));
  EXPECT_TRUE(has(error_of([&] { RunStore::create(dir.path(), sample::info(), {}); }), "already exists"));
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_TRUE(has(error_of([&] { RunReader::open(dir.path()); }), "not a regular file"));
}

// A run of store version 2 (2026-11), without anything that later versions write.
TEST(Store, ReadsThePreviousVersion) {
  TemporaryDirectory dir;
  const auto results = sample::every_kind();
  {
    auto store = RunStore::create(dir.path(), sample::info(), {"kvcts", "run"});
    store.plan(sample::plan_for(results));
    for (const auto& result : results) {
      if (result.tries.made == 0) store.record(result);
    }
    store.finish(Ending::interrupted);
    Db db(dir.path() / "store.db", OpenMode::write);
    const std::string info =
        R"({"suite":"smoke","selection":"--suite smoke","seed":7,"version":"0.9","machine":{"cpu":"x"},)"
        R"("started_ms":5,"left_out":2,"repro":{}})";
    SqlStatement(db, "UPDATE run SET info = ?, seal = ?").bind(1, info).bind(2, seal_run(info, std::ssize(results))).run();
    db.run("PRAGMA user_version=2");
  }
  const auto reader = RunReader::open(dir.path());
  EXPECT_EQ(reader.info().suite, "smoke");
  EXPECT_EQ(reader.info().left_out, 2);
  EXPECT_EQ(reader.info().repeat, 1);
  EXPECT_EQ(reader.counts().decided, std::ssize(reader.results()));
  EXPECT_FALSE(RunStore::open(dir.path(), {}).missing().empty()) << "and resumes it";
}

TEST(Store, RefusesANewerVersion) {
  TemporaryDirectory dir;
  RunStore::create(dir.path(), sample::info(), {}).finish(Ending::complete);
  {
    Db(dir.path() / "store.db", OpenMode::write).run(("PRAGMA user_version=" + std::to_string(schema_version + 1)).c_str());
  }
  for (const auto& error :
       {error_of([&] { RunReader::open(dir.path()); }), error_of([&] { RunStore::open(dir.path(), {}); })}) {
    EXPECT_TRUE(has(error, "newer KV-CTS (store version ")) << error;
  }
}

TEST(Store, MarksLongEvidenceAsTruncated) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  auto result = sample::passed(sample::planned(0));
  std::string text(100000, 'x');
  text.replace(65534, 4, "\xf0\x9f\x98\x80");  // a character across the limit
  result.evidence_files = {{"stdout", text}};
  store.plan(sample::plan(1));
  store.record(result);
  const auto back = store.reader().results().at(0).evidence_files.at(0).text;
  EXPECT_LT(back.size(), 66000u);
  EXPECT_TRUE(has(back, "[cut: 65534 of 100000 bytes kept]"));
}

TEST(Store, ReplacesOnlyCasesThatDidNotRun) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {"kvcts", allow_incomplete_flag});
  store.plan(sample::plan(2));
  auto left = sample::passed(sample::planned(0));
  left.outcome = Outcome::not_run;
  left.verdict = Verdict::unexpected;
  store.record(left);
  auto lacking = sample::passed(sample::planned(1));
  lacking.outcome = Outcome::skipped;
  lacking.verdict = Verdict::skipped;
  lacking.facts["lack"] = {{"name", "gpu"}, {"optional", true}};
  store.record(lacking);
  store.flush();
  EXPECT_EQ(exit_status(store.counts()), 1);
  EXPECT_TRUE(store.counts().allow_incomplete);
  ASSERT_EQ(store.counts().lacks.size(), 1u);
  EXPECT_EQ(store.counts().lacks[0].name, "gpu");
  EXPECT_TRUE(store.counts().lacks[0].optional);
  ASSERT_EQ(store.missing().size(), 1u);
  store.record(sample::passed(sample::planned(0)));
  store.finish(Ending::complete);
  EXPECT_TRUE(RunStore::open(dir.path(), {}).missing().empty());
  const auto counts = RunReader::open(dir.path()).counts();
  EXPECT_EQ(counts.decided, 2);
  EXPECT_EQ(exit_status(counts), 0);
}

TEST(Store, KeepsOnlyTheNewResultOfARerun) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  store.plan(sample::plan(2));
  const auto first = [&] { store.replace(sample::passed(sample::planned(0))); };
  EXPECT_TRUE(has(error_of(first), "has no result to replace"));
  auto failed = sample::passed(sample::planned(0));
  failed.outcome = Outcome::fail;
  failed.verdict = Verdict::unexpected;
  failed.evidence_files = {{"note", "of the first try"}};
  store.record(failed);
  store.record(sample::passed(sample::planned(1)));
  auto flaky = failed;
  flaky.outcome = Outcome::flaky;
  flaky.tries = {3, 1, 2, {{1, Outcome::fail, std::nullopt, FaultClass::none, "7 bytes are wrong", 5}}};
  flaky.evidence_files.clear();
  store.replace(flaky);
  store.finish(Ending::complete);
  const auto reader = RunReader::open(dir.path());
  EXPECT_EQ(to_json(reader.results().at(0)), to_json(sample::as_stored(flaky)));
  EXPECT_EQ(reader.results().size(), 2u);
  EXPECT_EQ(reader.counts().of(Outcome::flaky), 1);
  EXPECT_EQ(reader.counts().executions[0] + reader.counts().executions[1] + reader.counts().executions[2], 2)
      << "the execution that was replaced is gone";
  EXPECT_EQ(failures(reader.counts()), 1);
}

TEST(Store, NamesDirectoriesByTimeAndSuite) {
  TemporaryDirectory dir;
  const auto first = new_run_directory(dir.path() / "runs", "smoke/../x y");
  const auto second = new_run_directory(dir.path() / "runs", "smoke/../x y");
  EXPECT_NE(first, second);
  EXPECT_EQ(first.parent_path(), dir.path() / "runs");
  EXPECT_TRUE(has(first.filename().string(), "-smoke-..-x-y")) << first;
}

TEST(ExitStatus, FollowsTheCounts) {
  Counts c;
  EXPECT_EQ(exit_status(c), 4) << "nothing selected";
  c.planned = c.decided = 5;
  c.verdict[static_cast<int>(Verdict::as_expected)] = 3;
  c.verdict[static_cast<int>(Verdict::xfail)] = 1;
  c.verdict[static_cast<int>(Verdict::skipped)] = c.outcome[static_cast<int>(Outcome::skipped)] = 1;
  c.verdict[static_cast<int>(Verdict::xpass)] = 1;
  EXPECT_EQ(exit_status(c), 5) << "a missing thing that no suite accepts";
  c.lacks = {{"gpu", true, 1}};
  EXPECT_EQ(exit_status(c), 0);
  Counts open = c;
  open.verdict[static_cast<int>(Verdict::not_run)] = open.outcome[static_cast<int>(Outcome::not_run)] = 1;
  EXPECT_EQ(exit_status(open), 5) << "the clock ran out";
  Counts required = c;
  required.verdict[static_cast<int>(Verdict::unexpected)] = required.outcome[static_cast<int>(Outcome::not_run)] = 1;
  EXPECT_EQ(exit_status(required), 1) << "--require";
  EXPECT_TRUE(incomplete(required)) << "it did not run, whatever the verdict";
  open.allow_incomplete = true;
  EXPECT_EQ(exit_status(open), 0);
  EXPECT_TRUE(incomplete(open)) << "still";
  Counts nothing = c;
  nothing.planned = nothing.decided = 1;
  nothing.verdict = {}, nothing.outcome = {};
  nothing.verdict[static_cast<int>(Verdict::skipped)] = nothing.outcome[static_cast<int>(Outcome::skipped)] = 1;
  EXPECT_EQ(exit_status(nothing), 5) << "nothing ran, although the lack is accepted";
  for (const auto verdict : {Verdict::unexpected, Verdict::expired_waiver}) {
    Counts bad = c;
    bad.verdict[static_cast<std::size_t>(verdict)] = 1;
    EXPECT_EQ(exit_status(bad), 1) << name(verdict);
    bad.verdict[static_cast<std::size_t>(Verdict::error)] = 1;
    EXPECT_EQ(exit_status(bad), 3) << "3 wins over 1";
    bad.interrupted = true;
    EXPECT_EQ(exit_status(bad), 130);
  }
  c.missing = 1;
  EXPECT_EQ(exit_status(c), 1) << "planned and absent";
}

}  // namespace
}  // namespace kvcts::store
