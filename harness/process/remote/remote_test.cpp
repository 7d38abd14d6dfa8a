// A host of a run, played by this machine: kvcts-host at both ends.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "process/installation.hpp"
#include "process/launcher.hpp"
#include "process/procfs.hpp"
#include "process/remote/sockets.hpp"
#include "process/status_view.hpp"

namespace kvcts::process {
namespace {

using nlohmann::json;

class Remote : public ::testing::Test {
 protected:
  void SetUp() override { ::signal(SIGPIPE, SIG_IGN); }
  void TearDown() override {
    channel_.close();
    if (near_ > 0) ::waitpid(near_, nullptr, 0);
  }

  static std::string program() { return (program_folder() / "kvcts-host").string(); }

  /// kvcts-host near, which starts far by these words.
  void meet(const std::vector<std::string>& start) {
    errors_ = UniqueFd(::memfd_create("errors", MFD_CLOEXEC));
    LauncherProcess process =
        start_launcher({program(), "near", json{{"name", "decode"}, {"start", start}}.dump()}, {}, errors_.get());
    near_ = process.pid;
    channel_ = Channel(std::move(process.socket));
  }
  /// The next event of this kind; others are passed over.
  json event(const std::string& kind, int timeout_ms = 30'000) {
    for (;;) {
      json body = channel_.receive(timeout_ms).body;
      if (body.value("event", "") == kind) return body;
    }
  }
  /// Of the process that near started; 0: none.
  pid_t far_pid() const {
    for (const ProcessStat& stat : descendants(all_processes(), {near_}))
      if (stat.parent == near_) return stat.pid;
    return 0;
  }
  std::string message() const {
    char text[2048];
    const ssize_t got = ::pread(errors_.get(), text, sizeof text, 0);
    return std::string(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  /// Until near has ended by itself.
  std::string last_output() {
    ::waitpid(std::exchange(near_, 0), nullptr, 0);
    return message();
  }

  pid_t near_{0};
  Channel channel_;
  UniqueFd errors_;
};

TEST_F(Remote, StartsARemoteProcessAndForwardsItsOutputAndExit) {
  meet({program(), "far"});
  const json host = event("host");
  EXPECT_FALSE(host.value("address", "").empty());
  int out[2], err[2];
  ASSERT_EQ(::pipe(out), 0);
  ASSERT_EQ(::pipe(err), 0);
  UniqueFd out_in(out[0]), err_in(err[0]);
  const int fds[] = {out[1], err[1]};
  const SpawnRequest request{1, {"/somewhere/else/sh", "-c", "echo $WHAT; exit 7"}, {{"WHAT", "as told"}}, "x/1", 0};
  channel_.send(to_json(request), fds, 1000);
  ::close(out[1]), ::close(err[1]);
  EXPECT_EQ(event("spawned").at("pid"), -1);
  EXPECT_EQ(WEXITSTATUS(event("exit").at("status").get<int>()), 7);
  char text[64];
  const ssize_t got = ::read(out_in.get(), text, sizeof text);
  EXPECT_EQ(std::string(text, got > 0 ? static_cast<std::size_t>(got) : 0), "as told\n");
}

TEST_F(Remote, RejectsForeignProcesses) {
  char folder[] = "/tmp/kvcts-remote-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string line = folder + std::string("/line"), go = folder + std::string("/go");
  // far is held back while others try.
  meet({"/bin/sh", "-c",
        "read -r line; echo \"$line\" > " + line + ".new; mv " + line + ".new " + line + "; while [ ! -e " + go +
            " ]; do sleep 0.02; done; { echo \"$line\"; cat; } | " + program() + " far"});
  json asked;
  for (int i = 0; i < 1500 && !asked.is_object(); ++i) {
    std::ifstream in(line);
    asked = json::parse(in, nullptr, false);
    ::usleep(20'000);
  }
  ASSERT_TRUE(asked.is_object());
  const auto port = asked.at("port").get<std::uint16_t>();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 10; ++i) {
    std::string why;
    UniqueFd socket = connect_to("127.0.0.1", port, 2000, why);
    ASSERT_TRUE(socket) << why;
    const std::string noise(static_cast<std::size_t>(40 * i), static_cast<char>(i));
    ::send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    silent.push_back(std::move(socket));
  }
  std::ofstream(go) << "";
  EXPECT_FALSE(event("host").value("address", "").empty());
  for (const UniqueFd& socket : silent) {  // closed; none was answered beyond the header of near's stream
    char bytes[4096];
    pollfd entry{socket.get(), POLLIN, 0};
    std::size_t all = 0;
    ssize_t got = 0;
    while (::poll(&entry, 1, 5000) > 0 && (got = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0)
      all += static_cast<std::size_t>(got);
    EXPECT_LE(got, 0);
    EXPECT_LE(all, 24U);
  }
  std::string why;
  EXPECT_FALSE(connect_to("127.0.0.1", port, 1000, why));  // no one listens any more
  std::filesystem::remove_all(folder);
}

TEST_F(Remote, ReportsInOneLineWhyAHostIsUnreachable) {
  meet({"/bin/sh", "-c", "echo ssh: no route to host >&2; exit 255"});
  EXPECT_EQ(last_output(), "host decode: ssh: no route to host; ended with status 255\n");
}

TEST_F(Remote, ReportsAHostThatDies) {
  meet({program(), "far"});
  event("host");
  const pid_t far = far_pid();
  ASSERT_NE(far, 0);
  ::kill(far, SIGKILL);
  EXPECT_THROW(event("never"), FrameError);
  EXPECT_NE(last_output().find("host decode: the other host closed the channel"), std::string::npos) << message();
}

TEST_F(Remote, ReportsASilentHostAsLost) {
  meet({program(), "far"});
  event("host");
  const pid_t far = far_pid();
  ASSERT_NE(far, 0);
  ::kill(far, SIGSTOP);
  EXPECT_THROW(event("never"), FrameError);
  ::kill(far, SIGCONT);
  EXPECT_NE(last_output().find("host decode: no word from it for 10 s"), std::string::npos) << message();
}

}  // namespace
}  // namespace kvcts::process
