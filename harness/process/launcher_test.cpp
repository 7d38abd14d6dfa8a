// The launcher against children that try to escape: nothing is left after a kill, or after the supervisor's end.
#include "process/launcher.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "process/procfs.hpp"
#include "process/status_view.hpp"
#include "testing/checkout.hpp"

namespace kvcts::process {
namespace {

using nlohmann::json;

constexpr int patience_ms = 20'000;

std::string token() { return "t" + std::to_string(::getpid()) + "-" + std::to_string(now_ns()); }

/// Live processes of this run, by their mark.
std::vector<pid_t> alive(const std::string& run) {
  std::vector<pid_t> found;
  for (const ProcessStat& stat : all_processes())
    if (!stat.dead() && mark_matches(environment_of(stat.pid, mark_variable), run + "/")) found.push_back(stat.pid);
  return found;
}

bool process_is_alive(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat && !stat->dead();
}

bool eventually(const std::function<bool()>& condition) {
  for (const std::int64_t end = now_ns() + std::int64_t{patience_ms} * 1'000'000; now_ns() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

class LauncherTest : public ::testing::Test {
 protected:
  LauncherTest() : run_(token()) {
    rlimit core{};
    ::getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max;  // so that the test notices if the launcher does not forbid core files
    ::setrlimit(RLIMIT_CORE, &core);
    LauncherProcess launcher = start_launcher({checkout::build() + "/bin/kvcts-launcher", run_});
    pid_ = launcher.pid;
    channel_ = Channel(std::move(launcher.socket));
  }
  ~LauncherTest() override {
    channel_.close();
    ::waitpid(pid_, nullptr, 0);
    EXPECT_TRUE(alive(run_).empty());
  }

  /// Starts `/bin/sh -c script`; its standard output comes through a pipe.
  pid_t spawn(std::uint64_t id, const std::string& script, const json& environment = json::object(), bool marked = true) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    out_.reset(ends[0]);
    const UniqueFd write_end(ends[1]);
    SpawnRequest request;
    request.id = id;
    request.argv = {"/bin/sh", "-c", script};
    request.environment = environment;
    if (marked) request.mark = run_ + "/0/" + std::to_string(id);
    const int fds[] = {write_end.get(), STDERR_FILENO};
    channel_.send(to_json(request), fds);
    const json event = wait_for("spawned", id);
    return event.value("pid", 0);
  }

  json wait_for(const std::string& kind, std::uint64_t id) {
    for (;;) {
      for (auto it = events_.begin(); it != events_.end(); ++it) {
        if ((*it)["event"] != kind || (*it)["id"] != id) continue;
        const json event = *it;
        events_.erase(it);
        return event;
      }
      events_.push_back(channel_.receive(patience_ms).body);
    }
  }

  json kill(std::uint64_t id) {
    channel_.send({{"op", "kill"}, {"id", id}});
    return wait_for("killed", id);
  }

  std::string read_line() {
    std::string line;
    char c = 0;
    while (::read(out_.get(), &c, 1) == 1 && c != '\n') line += c;
    return line;
  }

  std::string run_;
  pid_t pid_{0};
  Channel channel_;
  UniqueFd out_;
  std::vector<json> events_;
};

TEST_F(LauncherTest, ReportsExitStatusSignalsAndUsage) {
  spawn(1, "exit 7");
  const json exit = wait_for("exit", 1);
  const int status = exit["status"];
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_GT(exit["max_rss"].get<std::int64_t>(), 0);
  spawn(2, "kill -SEGV $$");
  const int other = wait_for("exit", 2)["status"];
  EXPECT_TRUE(WIFSIGNALED(other));
  EXPECT_EQ(WTERMSIG(other), SIGSEGV);
}

TEST_F(LauncherTest, NamesAProgramThatCannotStart) {
  channel_.send({{"op", "spawn"}, {"id", 5}, {"argv", {"/nowhere/program"}}, {"mark", run_ + "/0/5"}});
  EXPECT_NE(wait_for("spawn-failed", 5)["text"].get<std::string>().find("No such file"), std::string::npos);
  channel_.send({{"op", "spawn"}, {"id", 6}, {"argv", json::array()}});
  EXPECT_FALSE(wait_for("spawn-failed", 6)["text"].get<std::string>().empty());
}

TEST_F(LauncherTest, GivesAChildOnlyItsOwnSessionAndEnvironment) {
  const pid_t pid =
      spawn(1, "echo $A-$KVCTS_WORKER; ls /proc/self/fd | tr '\\n' ' '; echo; ulimit -c; sleep 1000", {{"A", "b c"}});
  EXPECT_EQ(read_line(), "b c-" + run_ + "/0/1");
  const std::string fds = read_line();
  EXPECT_TRUE(fds == "0 1 2 3 " || fds == "0 1 2 3 4 ") << fds;  // ls has one for the folder
  EXPECT_EQ(read_line(), "0");
  const auto stat = read_stat(pid);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->session, pid);
  EXPECT_EQ(stat->group, pid);
  EXPECT_EQ(stat->parent, pid_);
}

TEST_F(LauncherTest, KillsAWorkerThatIgnoresSignals) {
  const pid_t pid = spawn(1, "trap '' TERM INT HUP QUIT; echo ready; while :; do sleep 1000; done");
  read_line();
  const json killed = kill(1);
  EXPECT_TRUE(killed["left"].empty());
  EXPECT_FALSE(process_is_alive(pid));
}

TEST_F(LauncherTest, KillsAStoppedWorker) {
  const pid_t pid = spawn(1, "echo ready; kill -STOP $$");
  read_line();
  ASSERT_TRUE(eventually([&] { return read_stat(pid)->state == 'T'; }));
  EXPECT_TRUE(kill(1)["left"].empty());
  EXPECT_FALSE(process_is_alive(pid));
}

TEST_F(LauncherTest, KillsChildrenThatLeftTheSession) {
  spawn(1, "setsid sleep 1000 & echo $!; sleep 1000");
  const pid_t other = std::stoi(read_line());
  ASSERT_TRUE(eventually([&] { return read_stat(other) && read_stat(other)->session == other; }));
  EXPECT_TRUE(kill(1)["left"].empty());
  EXPECT_FALSE(process_is_alive(other));
}

TEST_F(LauncherTest, KillsGrandchildrenWhoseParentsAreGone) {
  // Double fork and a new session: no chain of parents leads back, but the mark does.
  spawn(1, "(setsid sh -c 'sleep 1000 & echo $!' &); sleep 1000");
  const pid_t other = std::stoi(read_line());
  ASSERT_TRUE(eventually([&] { return read_stat(other) && read_stat(other)->parent == pid_; }));
  EXPECT_TRUE(kill(1)["left"].empty());
  EXPECT_FALSE(process_is_alive(other));
}

TEST_F(LauncherTest, KillsOrphansThatWipedTheirEnvironment) {
  spawn(1, "(setsid env -i sh -c 'sleep 1000 & echo $!' &); sleep 1000");
  const pid_t other = std::stoi(read_line());
  ASSERT_TRUE(eventually([&] { return read_stat(other) && read_stat(other)->parent == pid_; }));
  EXPECT_EQ(environment_of(other, mark_variable), "");
  EXPECT_TRUE(kill(1)["left"].empty());
  EXPECT_FALSE(process_is_alive(other));
}

TEST_F(LauncherTest, KillsOrphansOfAnUnmarkedToolByTheirGroup) {
  spawn(1, "(sh -c 'sleep 1000 & echo $!' &); sleep 1000", json::object(), false);
  const pid_t other = std::stoi(read_line());
  ASSERT_TRUE(eventually([&] { return read_stat(other) && read_stat(other)->parent == pid_; }));
  EXPECT_TRUE(kill(1)["left"].empty());
  EXPECT_FALSE(process_is_alive(other));
}

TEST_F(LauncherTest, LimitsPrivateMemory) {
  SpawnRequest request;
  request.id = 9;
  request.argv = {"/bin/sh", "-c", "ulimit -d"};
  request.mark = run_ + "/0/9";
  request.memory_limit = 64u << 20;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  out_.reset(ends[0]);
  const UniqueFd write_end(ends[1]);
  const int fds[] = {write_end.get(), STDERR_FILENO};
  channel_.send(to_json(request), fds);
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(read_line(), "unlimited");  // its shadow memory counts as private
#else
  EXPECT_EQ(read_line(), "65536");
#endif
}

TEST_F(LauncherTest, KillsOrphansAfterTheirWorkerExited) {
  spawn(1, "setsid sleep 1000 & echo $!; exit 0");
  const pid_t other = std::stoi(read_line());
  wait_for("exit", 1);
  EXPECT_TRUE(process_is_alive(other));
  const json killed = kill(1);
  EXPECT_EQ(killed["pids"], json::array({other}));
  EXPECT_FALSE(process_is_alive(other));
}

TEST_F(LauncherTest, KillsOnlyTheTreeOfTheNamedWorker) {
  spawn(1, "setsid sleep 1000 & echo $!; sleep 1000");
  const pid_t first_child = std::stoi(read_line());
  const pid_t second = spawn(2, "(setsid sh -c 'sleep 1000 & echo $!' &); sleep 1000");
  const pid_t second_orphan = std::stoi(read_line());
  ASSERT_TRUE(eventually([&] { return read_stat(second_orphan) && read_stat(second_orphan)->parent == pid_; }));
  EXPECT_TRUE(kill(1)["left"].empty());
  EXPECT_FALSE(process_is_alive(first_child));
  EXPECT_TRUE(process_is_alive(second));
  EXPECT_TRUE(process_is_alive(second_orphan));
}

TEST_F(LauncherTest, KillsAWorkerThatKeepsForking) {
  spawn(1, "f() { (setsid sh -c 'sleep 0.02' &); }; echo ready; while :; do f; f; sleep 0.01; done");
  read_line();
  EXPECT_TRUE(kill(1)["left"].empty());
  EXPECT_TRUE(alive(run_).empty());
}

TEST_F(LauncherTest, StopsAGroupUntilItIsResumed) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / run_;
  std::filesystem::create_directory(folder);
  const auto counts = [&](const char* name) {
    return "n=0; while :; do n=$((n+1)); echo $n > " + (folder / name).string() + "; done";
  };
  const auto read = [&](const char* name) { return read_text_file((folder / name).string()); };
  spawn(1, "sh -c '" + counts("child") + "' & " + counts("own"));
  spawn(2, "sleep 60");
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(eventually([&] { return !read("child").empty() && !read("own").empty(); }));
    channel_.send({{"op", "stop"}, {"id", 1}});
    ASSERT_TRUE(wait_for("still", 1)["left"].empty());
    const std::string child = read("child"), own = read("own");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(read("child"), child);
    EXPECT_EQ(read("own"), own);
    channel_.send({{"op", "resume"}, {"id", 1}});
    EXPECT_TRUE(eventually([&] { return read("child") != child && read("own") != own; }));
  }
  EXPECT_TRUE(kill(1)["left"].empty());
  std::filesystem::remove_all(folder);
}

TEST_F(LauncherTest, StopsAWorkerThatKeepsForking) {
  spawn(1, "while :; do (sleep 0.001; :) & done");
  channel_.send({{"op", "stop"}, {"id", 1}});
  EXPECT_TRUE(wait_for("still", 1)["left"].empty());
  EXPECT_TRUE(kill(1)["left"].empty());
}

TEST_F(LauncherTest, ResumesASelfStoppedChildOnlyByName) {
  spawn(1, "sleep 60 & kill -STOP $$; kill %1; exit 5");
  wait_for("stopped", 1);
  channel_.send({{"op", "stop"}, {"id", 1}});
  wait_for("still", 1);
  channel_.send({{"op", "resume"}, {"id", 1}});
  channel_.send({{"op", "stop"}, {"id", 1}});
  wait_for("still", 1);
  channel_.send({{"op", "resume"}, {"id", 1}, {"also", {1}}});
  EXPECT_EQ(WEXITSTATUS(wait_for("exit", 1)["status"].get<int>()), 5);
}

TEST_F(LauncherTest, EndsAllWorkersWhenTheSocketCloses) {
  spawn(1, "setsid sleep 1000 & echo $!; sleep 1000");
  read_line();
  spawn(2, "(setsid env -i sh -c 'sleep 1000 & echo $!' &); sleep 1000");
  const pid_t orphan = std::stoi(read_line());
  EXPECT_FALSE(alive(run_).empty());
  channel_.close();
  ASSERT_TRUE(eventually([&] { return ::waitpid(pid_, nullptr, WNOHANG) == pid_; }));
  EXPECT_TRUE(alive(run_).empty());
  EXPECT_FALSE(process_is_alive(orphan));
}

TEST_F(LauncherTest, EndsAllWorkersWhenKilled) {
  const pid_t pid = spawn(1, "echo $TMPDIR; exec sleep 1000");
  const std::filesystem::path folder = read_line();
  ::kill(pid_, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !process_is_alive(pid); }));
  const std::filesystem::path of_another = std::filesystem::temp_directory_path() / ("kvcts-run-" + token());
  std::filesystem::create_directory(of_another);  // without a lock: its owner is unknown
  // The dead launcher left the other one: the next launcher removes it, whether from this test or another.
  LauncherProcess next = start_launcher({checkout::build() + "/bin/kvcts-launcher", run_});
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(folder); }));
  next.socket.reset();
  ::waitpid(next.pid, nullptr, 0);
  EXPECT_TRUE(std::filesystem::remove(of_another));
}

TEST_F(LauncherTest, KeepsTemporaryFilesOfAnotherRun) {
  spawn(1, "echo $TMPDIR; exec sleep 1000");
  const std::filesystem::path folder = read_line();
  LauncherProcess next = start_launcher({checkout::build() + "/bin/kvcts-launcher", token()});
  next.socket.reset();
  ::waitpid(next.pid, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(folder));
}

TEST_F(LauncherTest, RemovesTemporaryFilesOfItsRun) {
  spawn(1, "touch $TMPDIR/of-one-that-was-killed; echo $TMPDIR; sleep 1000");
  const std::filesystem::path folder = read_line();
  spawn(2, "mkdir $TMPDIR/of-one-that-ended; touch $TMPDIR/of-one-that-ended/file; echo $TMPDIR");
  EXPECT_EQ(read_line(), folder);
  EXPECT_NE(folder, std::filesystem::temp_directory_path());
  EXPECT_TRUE(std::filesystem::exists(folder / "of-one-that-was-killed"));
  kill(1);
  channel_.close();
  ASSERT_TRUE(eventually([&] { return ::waitpid(pid_, nullptr, WNOHANG) == pid_; }));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(LauncherTest, EndsTheRunOnGarbageFromTheSupervisor) {
  const pid_t pid = spawn(1, "echo ready; sleep 1000");
  read_line();
  ASSERT_EQ(::write(channel_.fd(), "\x05\0\0\0hello", 9), 9);
  EXPECT_TRUE(eventually([&] { return !process_is_alive(pid); }));
}

// The supervisor is killed with a worker, an escaped child and its orphan alive: nothing survives.
TEST(Launcher, LeavesNoProcessAfterAKilledSupervisor) {
  const std::string run = token();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    LauncherProcess launcher = start_launcher({checkout::build() + "/bin/kvcts-launcher", run});
    Channel channel(std::move(launcher.socket));
    SpawnRequest request;
    request.id = 1;
    request.mark = run + "/0/1";
    request.argv = {"/bin/sh", "-c", "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & echo ready' &); sleep 1000"};
    const int fds[] = {ends[1], STDERR_FILENO};
    channel.send(to_json(request), fds);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char c = 0;
  ASSERT_EQ(::read(ends[0], &c, 1), 1);
  EXPECT_GE(alive(run).size(), 3u);
  ::kill(supervisor, SIGKILL);
  ::waitpid(supervisor, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return alive(run).empty(); }));
  ::close(ends[0]);
}

TEST(PidWatch, DetectsNewProcesses) {
  const PidWatch watch;
  const std::int64_t before = watch.last();
  ASSERT_GE(before, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const std::vector<pid_t> created = watch.created_since(before);
  EXPECT_NE(std::find(created.begin(), created.end(), child), created.end());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const std::vector<pid_t> after = watch.created_since(before);
  EXPECT_EQ(std::find(after.begin(), after.end(), child), after.end());
}

TEST(Procfs, ReadsItsOwnProcess) {
  const auto stat = read_stat(::getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, ::getppid());
  EXPECT_EQ(stat->session, ::getsid(0));
  EXPECT_FALSE(stat->dead());
  EXPECT_EQ(thread_group_of(::getpid()), ::getpid());
  EXPECT_GT(private_bytes(::getpid()), 0u);
  EXPECT_FALSE(read_stat(0x3fffffff));
  EXPECT_EQ(read_proc_text(0x3fffffff, "stat"), "(No such file or directory)");
}

TEST(Procfs, MatchesMarksExactlyOrByRun) {
  EXPECT_TRUE(mark_matches("r/0/1", "r/0/1"));
  EXPECT_FALSE(mark_matches("r/0/11", "r/0/1"));
  EXPECT_TRUE(mark_matches("r/0/11", "r/"));
  EXPECT_FALSE(mark_matches("rr/0/1", "r/"));
  EXPECT_FALSE(mark_matches("", "r/"));
  EXPECT_FALSE(mark_matches("r/0/1", ""));
}

}  // namespace
}  // namespace kvcts::process
