// What a store survives: kill -9 of its writer, a full disk, flipped bits, truncation. The rule for damage: either
// one clear error, or exactly the stored content; never a crash, never other content.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <set>
#include <system_error>

#include "run/store/testing/sample.hpp"

// Counts SQLite's syncs: a killed process cannot distinguish a store that syncs from one that does not; a power cut
// could.
static std::atomic<int> syncs{0};
extern "C" int fsync(int fd) {
  ++syncs;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd) {
  ++syncs;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace kvcts::store {
namespace {

namespace fs = std::filesystem;
using sample::TemporaryDirectory;

// ---- kill -9 ---------------------------------------------------------------------------------------------------------

// Runs in a child process: resumes the run and keeps reporting on `pipe` how many results the store promised are safe.
[[noreturn]] void write_until_killed(const fs::path& directory, int pipe) {
  try {
    auto store = RunStore::open(directory, {"writer"});
    auto left = store.missing();
    std::mt19937 random(static_cast<unsigned>(::getpid()));
    for (std::size_t i = 0; i < left.size(); ++i) {
      store.record(sample::passed(left[i]));
      if (random() % 10 == 0) store.flush();
      if (store.waiting() == 0) {
        const auto safe = static_cast<std::uint32_t>(i + 1);
        if (::write(pipe, &safe, sizeof safe) != sizeof safe) ::_exit(3);
      }
    }
    store.finish(Ending::complete);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "writer: %s\n", error.what());
    ::_exit(2);
  }
  ::_exit(0);
}

struct Killed {
  int status{0};          ///< of waitpid()
  std::uint32_t safe{0};  ///< results whose safety it acknowledged
};

Killed write_and_kill(const fs::path& directory, useconds_t after) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  const pid_t child = ::fork();
  if (child == 0) write_until_killed(directory, ends[1]);
  ::close(ends[1]);
  ::usleep(after);
  Killed killed;
  if (child < 0 || ::kill(child, SIGKILL) != 0 || ::waitpid(child, &killed.status, 0) != child)
    throw std::system_error(errno, std::generic_category(), "fork, kill or waitpid");
  for (std::uint32_t next = 0; ::read(ends[0], &next, sizeof next) == sizeof next;) killed.safe = next;
  ::close(ends[0]);
  return killed;
}

void complete_and_expect_all(const fs::path& directory, std::int64_t missing, int cases) {
  auto store = RunStore::open(directory, {"last"});
  const auto left = store.missing();
  EXPECT_EQ(std::ssize(left), missing);
  for (const auto& planned : left) store.record(sample::passed(planned));
  store.finish(Ending::complete);
  const auto rows = store.reader().rows();
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(cases));
  for (int n = 0; n < cases; ++n) {
    ASSERT_TRUE(rows[static_cast<std::size_t>(n)].decided);
    ASSERT_EQ(rows[static_cast<std::size_t>(n)].planned, sample::planned(n));
  }
}

// Sums what children acknowledged before they died at a random moment; afterwards the store must hold at least that,
// each id once.
TEST(StoreKill, LosesNoAcknowledgedResultAndCountsNoneTwice) {
  constexpr int cases = 12000;
  TemporaryDirectory dir;
  RunStore::create(dir.path(), sample::info(), {}).plan(sample::plan(cases));
  std::mt19937 random(7);
  std::int64_t decided = 0;
  int kills = 0;
  for (int round = 0; round < 1000 && kills < 100; ++round) {
    const Killed killed = write_and_kill(dir.path(), static_cast<useconds_t>(2000 + random() % 25000));
    if (WIFSIGNALED(killed.status)) ++kills;
    const auto reader = RunReader::open(dir.path());  // integrity check included
    const auto counts = reader.counts();
    ASSERT_EQ(counts.planned, cases);
    ASSERT_GE(counts.decided, decided + killed.safe) << "an acknowledged result is lost";
    std::set<std::string> seen;
    for (const auto& r : reader.results()) ASSERT_TRUE(seen.insert(r.id).second) << r.id << " twice";
    ASSERT_EQ(std::ssize(seen), counts.decided);
    decided = counts.decided;
    if (!WIFEXITED(killed.status)) continue;
    ASSERT_EQ(WEXITSTATUS(killed.status), 0);
    break;
  }
  EXPECT_GE(kills, 100) << "the run was over too soon to be killed often enough: raise `cases`";
  complete_and_expect_all(dir.path(), cases - decided, cases);
}

// Killed while the run directory is created and planned: it resumes, or reports in one sentence that there is nothing
// to resume.
TEST(StoreKill, KilledCreationLeavesAResumableStoreOrNone) {
  std::mt19937 random(11);
  std::chrono::microseconds took{0};  // time of a whole creation on this machine
  int resumed = 0, refused = 0;
  for (int round = 0; round < 60; ++round) {
    TemporaryDirectory dir;
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const auto since = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = RunStore::create(dir.path(), sample::info(), {});
      store.plan(sample::plan(2000));
      if (::write(ends[1], "x", 1) != 1) ::_exit(3);
      ::pause();
    }
    ::close(ends[1]);
    if (char done = 0; round % 10 == 0) {
      ASSERT_EQ(::read(ends[0], &done, 1), 1);
      took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - since);
    } else {
      ::usleep(static_cast<useconds_t>(random() % static_cast<unsigned long>(took.count() + 1)));
    }
    ::close(ends[0]);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    try {
      auto store = RunStore::open(dir.path(), {});
      EXPECT_FALSE(store.plan(sample::plan(2000)));
      EXPECT_EQ(store.missing().size(), 2000u);
      ++resumed;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GE(resumed, 6) << "those that were complete";
  RecordProperty("resumed", resumed);
  RecordProperty("refused", refused);
}

TEST(StoreSync, EveryCommitReachesTheDisk) {
  TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  store.plan(sample::plan(3));
  for (int n = 0; n < 3; ++n) {
    store.record(sample::passed(sample::planned(n)));
    const int before = syncs;
    store.flush();
    EXPECT_GT(syncs, before);
  }
}

// ---- no room ---------------------------------------------------------------------------------------------------------

// Runs in a child, because the limit is per process. Exit 0: full as expected, nothing committed lost, and resumed
// with more room.
int fill_up(const fs::path& directory, const std::function<void()>& make_room) {
  auto store = RunStore::create(directory, sample::info(), {});
  store.plan(sample::plan(4000));
  std::int64_t recorded = 0, committed = 0;
  bool full = false;
  for (; recorded < 4000 && !full; ++recorded) {
    auto result = sample::passed(sample::planned(static_cast<int>(recorded)));
    result.evidence_files = {{"stdout", std::string(4096, 'x')}};
    try {
      store.record(result);
      if (store.waiting() == 0) committed = recorded + 1;
    } catch (const DiskFull& error) {
      if (std::string(error.what()).find("no room left") == std::string::npos) return 10;
      full = true;
    }
  }
  if (!full) return 11;
  if (RunReader::open(directory).counts().decided != committed) return 12;
  make_room();
  store.flush();
  if (store.counts().decided != recorded) return 13;
  store.finish(Ending::complete);
  return RunReader::open(directory).results().size() == static_cast<std::size_t>(recorded) ? 0 : 14;
}

int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(body());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(20);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StoreFull, LosesNothingAtAFileSizeLimit) {
  TemporaryDirectory dir;
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              rlimit limit{3 << 20, RLIM_INFINITY};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 21;
              return fill_up(dir.path(), [&] {
                limit.rlim_cur = RLIM_INFINITY;
                ::setrlimit(RLIMIT_FSIZE, &limit);
              });
            }),
            0);
}

// A mount namespace for this process; false if the machine does not allow it.
bool own_mounts() {
  const auto uid = ::getuid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1\n";
  }
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

TEST(StoreFull, LosesNothingOnAFullDisk) {
  TemporaryDirectory dir;
  const int got = in_child([&] {
    if (!own_mounts() || ::mount("none", dir.path().c_str(), "tmpfs", 0, "size=4m") != 0) return 77;
    return fill_up(dir.path() / "run", [&] {
      if (::mount("none", dir.path().c_str(), "tmpfs", MS_REMOUNT, "size=64m") != 0) throw std::runtime_error("remount");
    });
  });
  if (got == 77) GTEST_SKIP() << "this machine does not let a test mount a private small file system";
  EXPECT_EQ(got, 0);
}

// ---- damage ----------------------------------------------------------------------------------------------------------

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const fs::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Everything that a report would show.
nlohmann::json everything(const RunReader& reader) {
  nlohmann::json out;
  const auto info = reader.info();
  out["run"] = {info.suite, info.selection, info.seed, info.version, info.machine, info.provenance, info.started_ms};
  for (const auto& s : reader.sessions())
    out["sittings"].push_back({s.argv, s.pid, s.ended_ms, s.reason, s.ending.has_value()});
  reader.for_each([&](const Row& row) {
    auto item = to_json(row.result);
    item["decided"] = row.decided;
    item["shared_with"] = row.shared_with;
    item["executions"] = row.executions;
    for (const auto& e : row.planned.expected) item["expected"].push_back(to_json(e));
    out["rows"].push_back(std::move(item));
  });
  const auto counts = reader.counts();
  out["counts"] = {counts.planned, counts.decided,    counts.outcome, counts.verdict,
                   counts.ids,     counts.executions, counts.case_ns};
  return out;
}

struct Tally {
  int same{0}, refused{0}, fewer{0};
};

// Reads a damaged copy. `may_lose`: results at the end of a write-ahead log may be gone (SQLite drops what fails its
// checksum).
void examine(const fs::path& directory, const nlohmann::json& truth, bool may_lose, Tally& tally, const std::string& what) {
  try {
    const auto got = everything(RunReader::open(directory));
    if (got == truth) {
      ++tally.same;
    } else if (may_lose) {
      ++tally.fewer;
      for (std::size_t i = 0; i < got.value("rows", nlohmann::json::array()).size(); ++i) {
        const auto& row = got["rows"][i];
        if (row["decided"].get<bool>()) {
          ASSERT_EQ(row, truth["rows"][i]) << what;
        }
      }
    } else {
      FAIL()
          << what << ": read without an error, but with other content: "
          << nlohmann::json::diff(truth, got).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 600);
    }
  } catch (const Error& error) {
    ++tally.refused;
    const std::string text = error.what();
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(text.find('\n'), std::string::npos) << what << ": more than one line: " << text;
  }
  // A writer must be as careful: it may refuse or resume. (It syncs the disk, so only test it sometimes.)
  if ((tally.same + tally.refused + tally.fewer) % 8 != 0) return;
  try {
    auto store = RunStore::open(directory, {"again"});
    store.missing();
  } catch (const Error&) {
  }
}

class StoreDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    auto results = sample::every_kind();
    auto plan = sample::plan_for(results);
    for (int n = 0; n < 60; ++n) plan.push_back(sample::planned(n));
    auto store = RunStore::create(original(), sample::info(), {"kvcts", "run", "argv-word"});
    store.plan(plan);
    for (const auto& r : results) store.record(r);
    for (int n = 0; n < 50; ++n) store.record(sample::passed(sample::planned(n)));
    store.finish(Ending::complete, "some reason");
    bytes_ = contents(original() / "store.db");
    truth_ = everything(RunReader::open(original()));
    ASSERT_EQ(truth_["rows"].size(), plan.size());
    fs::create_directory(copy());
  }
  fs::path original() const { return dir_.path() / "original"; }
  fs::path copy() const { return dir_.path() / "copy"; }
  void lay_out(std::string_view store) {
    fs::remove_all(copy());
    fs::create_directory(copy());
    put(copy() / "store.db", store);
  }

  TemporaryDirectory dir_;
  std::string bytes_;
  nlohmann::json truth_;
};

TEST_F(StoreDamage, DetectsFlippedBits) {
  std::mt19937 random(3);
  Tally tally;
  for (int round = 0; round < 500; ++round) {
    std::string damaged = bytes_;
    // A fifth of the flips in the first page, which has header and schema.
    const std::size_t range = round % 5 == 0 ? 4096 : damaged.size();
    const std::size_t at = random() % range;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    lay_out(damaged);
    examine(copy(), truth_, false, tally, "bit flipped in byte " + std::to_string(at));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(tally.refused, 100);
  EXPECT_GT(tally.same, 10) << "free space exists";
  RecordProperty("refused", tally.refused);
}

// One bit inside a text breaks no page: only its row's seal detects it.
TEST_F(StoreDamage, DetectsFlippedBitsInTexts) {
  for (const std::string_view text : {
           "argv-word",
           "some reason",
           "a CPU of 4 cores",
           "--suite sample",
           "complete",
           "every/crash",
           "as expected",
           "XPASS",
           "executed",
           "mooncake-lbhnc",
           "SIGSEGV",
           "K layer 0 block 3 slot 2",
           "poll ()",
           R"("arch":"sm_75")",
           R"([{"outcome":"PASS"}])",
           "hang-transfer",
       }) {
    const auto at = bytes_.rfind(text);  // the first ones may be in the schema
    ASSERT_NE(at, std::string::npos) << text;
    std::string damaged = bytes_;
    damaged[at + text.size() / 2] ^= 1;
    lay_out(damaged);
    EXPECT_THROW(everything(RunReader::open(copy())), Error) << text;
  }
}

TEST_F(StoreDamage, DetectsTruncation) {
  std::mt19937 random(4);
  Tally tally;
  for (int round = 0; round < 200; ++round) {
    const std::size_t size = round < 50 ? static_cast<std::size_t>(round) * 4096 % bytes_.size() : random() % bytes_.size();
    lay_out(std::string_view(bytes_).substr(0, size));
    examine(copy(), truth_, false, tally, "cut to " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(tally.refused, 200) << "a cut file is never taken for a whole one";
}

TEST_F(StoreDamage, DetectsOverwrittenRanges) {
  std::mt19937 random(5);
  Tally tally;
  for (int round = 0; round < 200; ++round) {
    std::string damaged = bytes_;
    const std::size_t at = random() % damaged.size();
    const std::size_t size = std::min<std::size_t>(damaged.size() - at, 1 + random() % 9000);
    for (std::size_t i = 0; i < size; ++i) damaged[at + i] = round % 2 == 0 ? '\0' : static_cast<char>(random());
    lay_out(damaged);
    examine(copy(), truth_, false, tally, "overwritten from " + std::to_string(at) + " for " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(tally.refused, 100);
}

// A killed run has a write-ahead log next to the store: damage either.
TEST_F(StoreDamage, RecoversAKilledRunWithADamagedLog) {
  const auto killed = dir_.path() / "killed";
  ASSERT_EQ(in_child([&] {
              auto store = RunStore::create(killed, sample::info(), {});
              store.plan(sample::plan(40));
              for (int n = 0; n < 30; ++n) {
                store.record(sample::passed(sample::planned(n)));
                store.flush();
              }
              ::kill(::getpid(), SIGKILL);
              return 1;
            }),
            128 + SIGKILL);
  const std::string main = contents(killed / "store.db"), log = contents(killed / "store.db-wal");
  ASSERT_GT(log.size(), 4096u);
  const auto lay_out_killed = [&](const std::string& a, const std::string& b) {
    lay_out(a);
    put(copy() / "store.db-wal", b);
  };
  lay_out_killed(main, log);
  const auto truth = everything(RunReader::open(copy()));
  ASSERT_EQ(truth["counts"][1], 30);
  std::mt19937 random(6);
  Tally tally;
  for (int round = 0; round < 200; ++round) {
    std::string a = main, b = log;
    std::string& damaged = round % 4 == 0 ? a : b;
    if (round % 3 == 0) {
      damaged.resize(random() % damaged.size());
    } else {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << (random() % 8));
    }
    lay_out_killed(a, b);
    examine(copy(), truth, true, tally, "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(tally.fewer, 0);
}

}  // namespace
}  // namespace kvcts::store
