// The fixture does what its name says, no more and no less; and the comparison that the conformance tests use detects
// every data fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "engines/testing/target.hpp"

namespace kvcts::testing {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool sanitized = true;  // ASan turns signals into exit(1) and reserves terabytes of addresses
#else
constexpr bool sanitized = false;
#endif

using namespace std::chrono_literals;
using transport::Op;
using transport::RequestId;
using transport::Session;
using transport::TransportError;
using Options = std::map<std::string, std::string>;

constexpr std::size_t size = 1 << 16;
constexpr std::size_t slots = 16, block = 1000, stride = 2048;

/// Two agents in this process, one with the fault, and 16 blocks to write, from slot i to slot 15 - i.
struct Fixture {
  explicit Fixture(const Options& options)
      : plugin(transport::Plugin::load(transport::find_plugin("kvcts_engine_fixture"))),
        producer(plugin, {.name = "producer", .role = transport::Role::producer, .options = options}),
        consumer(plugin, {.name = "consumer", .role = transport::Role::consumer}) {
    from.fill(1);
    to.fill(2);
    local = producer.register_region(from.region(0, size));
    const auto remote = consumer.register_region(to.region(0, size));
    peer = producer.add_peer(consumer.metadata(std::array{remote}));
    for (std::size_t i = 0; i < slots; ++i) list.push_back({local, i * stride, 0, (slots - 1 - i) * stride, block});
    wanted = to.copy();
    for (const auto& d : list) wanted.replace(d.remote_offset, d.bytes, from.copy(), d.local_offset, d.bytes);
  }
  RequestId post() { return producer.post(peer, Op::write, list); }
  std::size_t wrong() const { return different(to.copy(), wanted); }
  static std::size_t different(const std::string& a, const std::string& b) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
    return count;
  }

  Memory from{size}, to{size};
  std::shared_ptr<const transport::Plugin> plugin;
  Session producer, consumer;
  transport::RegionId local{0};
  transport::PeerId peer{0};
  std::vector<transport::Descriptor> list;
  std::string wanted;
};

/// The wait status of a child that ran `body`; nullopt if it did not end within `limit` (then it is killed).
std::optional<int> outcome(const std::function<void()>& body, std::chrono::milliseconds limit = 3000ms) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(99);
    }
    _exit(42);
  }
  int status = 0;
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
    if (waitpid(child, &status, WNOHANG) == child) return status;
    std::this_thread::sleep_for(5ms);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return std::nullopt;
}

int run_case(const Options& options) {
  Fixture fixture(options);
  fixture.producer.wait(fixture.post());
  return 0;
}

struct Fault {
  std::string name;
  std::size_t wrong;  ///< bytes that differ from the right destination afterwards
};

class DataFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(DataFaults, ChangeExactlyTheListedBytesAndReportSuccess) {
  // Random bytes agree by chance with p = 1/256: counts of wrong whole blocks are at least 95 % of the stated ones.
  Fixture fixture(Options{{"fault", GetParam().name}});
  const std::string source = fixture.from.copy();
  const RequestId request = fixture.post();
  EXPECT_TRUE(fixture.producer.wait(request).done);
  EXPECT_EQ(fixture.producer.poll(request).bytes, slots * block) << "it claims to have moved everything";
  EXPECT_LE(fixture.wrong(), GetParam().wrong);
  EXPECT_GE(fixture.wrong(), GetParam().wrong - GetParam().wrong / 20);
  EXPECT_EQ(Fixture::different(fixture.from.copy(), source), GetParam().name == "touch_source" ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DataFaults,
                         ::testing::Values(Fault{"", 0}, Fault{"partial", slots * block / 2},
                                           Fault{"nothing", slots * block}, Fault{"skip_last", block}, Fault{"overrun", 1},
                                           Fault{"wrong_source", slots * block}, Fault{"flip_bit", 1},
                                           Fault{"touch_source", 0}),
                         [](const auto& fault) {
                           return fault.param.name.empty() ? std::string("none") : fault.param.name;
                         });

TEST(Fixture, InjectsFaultsIntoASingleDescriptor) {
  for (const std::string fault : {"wrong_source", "partial", "overrun"}) {
    Fixture fixture(Options{{"fault", fault}});
    fixture.list.resize(1);
    const std::string before = fixture.to.copy();
    std::string wanted = before;
    wanted.replace(fixture.list[0].remote_offset, block, fixture.from.copy(), 0, block);
    fixture.producer.wait(fixture.post());
    EXPECT_NE(fixture.to.copy(), wanted) << fault;
    EXPECT_NE(fixture.to.copy(), before) << fault;
  }
}

TEST(Fixture, NeverCompleteStillMovesAllBytes) {
  Fixture fixture(Options{{"fault", "never_complete"}});
  const RequestId request = fixture.post();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(fixture.producer.poll(request).done);
  EXPECT_EQ(fixture.wrong(), 0u);
}

TEST(Fixture, LateWriteComesAfterCompletion) {
  Fixture fixture(Options{{"fault", "late_write"}, {"delay_us", "60000"}});
  fixture.producer.wait(fixture.post());
  EXPECT_EQ(fixture.wrong(), 0u) << "right at completion";
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(fixture.wrong(), 64u) << "and changed later";
}

struct Death {
  std::string fault;
  int signal;  ///< or 0: exit status 0
};
class Deaths : public ::testing::TestWithParam<Death> {};

TEST_P(Deaths, EndTheProcessInTheirPhase) {
  if (sanitized) GTEST_SKIP() << "AddressSanitizer handles these signals itself";
  for (const std::string phase : {"open", "register", "connect", "transfer", "midway", "complete"}) {
    const auto status =
        outcome([&] { run_case({{"fault", GetParam().fault}, {"phase", phase}, {"bytes", "1000000000000"}}); });
    ASSERT_TRUE(status) << phase;
    if (GetParam().signal == 0) {
      EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << phase;
    } else {
      EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == GetParam().signal) << phase << " status " << *status;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, Deaths,
                         ::testing::Values(Death{"segv", SIGSEGV}, Death{"abrt", SIGABRT}, Death{"bus", SIGBUS},
                                           Death{"exit0", 0}),
                         [](const auto& death) { return death.param.fault; });

TEST(Fixture, AllocatesUpToTheMemoryLimitAndAborts) {
  if (sanitized) GTEST_SKIP() << "AddressSanitizer does not work under RLIMIT_AS";
  const auto status = outcome([] {
    const rlimit limit{512u << 20, 512u << 20};
    setrlimit(RLIMIT_AS, &limit);
    run_case({{"fault", "eat_memory"}});
  });
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGABRT);
  EXPECT_EQ(outcome([] { run_case({{"fault", "eat_memory"}, {"bytes", "33554432"}}); }), 42 << 8)
      << "below the limit it continues";
}

class Hangs : public ::testing::TestWithParam<std::string> {};

TEST_P(Hangs, HangOnlyTheFaultySide) {
  EXPECT_EQ(outcome([&] { run_case({{"fault", GetParam()}}); }, 400ms), std::nullopt);
  EXPECT_EQ(outcome([&] { run_case({{"fault", GetParam()}, {"side", "consumer"}}); }), 42 << 8)
      << "the other side posts nothing";
}
INSTANTIATE_TEST_SUITE_P(Kinds, Hangs, ::testing::Values("spin", "sleep_in_read", "ignore_sigterm", "sigstop"),
                         [](const auto& fault) { return fault.param; });

TEST(Fixture, IgnoresSigterm) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    Fixture fixture(Options{{"fault", "ignore_sigterm"}});
    [[maybe_unused]] const auto reported = write(ready[1], "x", 1);
    fixture.post();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  std::this_thread::sleep_for(100ms);
  kill(child, SIGTERM);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "it lives on";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(Fixture, ForksAChildThatLeavesTheProcessGroup) {
  // The escaped child holds the pipe open: end of file comes only when it, too, is dead.
  int held[2];
  ASSERT_EQ(pipe(held), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(held[0]);
    setpgid(0, 0);
    run_case({{"fault", "fork_escape"}});
    _exit(42);
  }
  close(held[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 42 << 8) << "the case itself continues";
  kill(-child, SIGKILL);
  timeval soon{0, 200'000};
  fd_set set;
  FD_ZERO(&set);
  FD_SET(held[0], &set);
  EXPECT_EQ(select(held[0] + 1, &set, nullptr, nullptr, &soon), 0) << "a process outside the group still holds it";
  // Its session id is its own pid; find it by the pipe it holds and end it.
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", held[0]);
  const auto pipe_name = std::filesystem::read_symlink(link);
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    const auto pid = std::atoi(process.path().filename().c_str());
    if (pid <= 0 || pid == getpid()) continue;
    std::error_code error;
    for (const auto& fd : std::filesystem::directory_iterator(process.path() / "fd", error)) {
      if (std::filesystem::read_symlink(fd.path(), error) == pipe_name) {
        EXPECT_EQ(getsid(pid), pid);
        kill(pid, SIGKILL);
        break;
      }
    }
  }
  char byte = 0;
  EXPECT_EQ(read(held[0], &byte, 1), 0);
}

TEST(Fixture, WritesGarbageToTheStreamSocket) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_EQ(outcome([&] { run_case({{"fault", "garbage"}}); }), 42 << 8);
  char data[64]{};
  EXPECT_GT(recv(pair[0], data, sizeof data, MSG_DONTWAIT), 8);
  EXPECT_THAT(std::string(data + 4), ::testing::HasSubstr("this is not a frame"));
}

TEST(Fixture, FloodWritesTheRequestedAmount) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::size_t bytes = 0;
  std::thread reader([&] {
    std::string buffer(1 << 16, '\0');
    for (ssize_t part = 0; (part = read(ends[0], buffer.data(), buffer.size())) > 0;)
      bytes += static_cast<std::size_t>(part);
  });
  EXPECT_EQ(outcome([&] {
              dup2(ends[1], STDOUT_FILENO);
              run_case({{"fault", "flood_stdout"}, {"bytes", "10485760"}});
            }),
            42 << 8);
  close(ends[1]);
  reader.join();
  EXPECT_EQ(bytes, 10485760u);
}

TEST(Fixture, RefusesWithATypedError) {
  try {
    Fixture fixture(Options{{"fault", "refuse"}, {"phase", "register"}, {"side", "producer"}});
    FAIL();
  } catch (const TransportError& error) {
    EXPECT_EQ(error.code(), transport::Code::not_supported);
    EXPECT_EQ(error.native(), 4711);
  }
}

TEST(Fixture, RefusesUnknownFaults) {
  for (const Options& options :
       {Options{{"fault", "spinn"}}, Options{{"fault", "spin"}, {"phase", "later"}}, Options{{"side", "left"}},
        Options{{"bytes", "-1"}}, Options{{"delay_us", "soon"}}, Options{{"colour", "red"}}}) {
    EXPECT_THROW(Fixture fixture(options), TransportError) << options.begin()->first << "=" << options.begin()->second;
  }
}

}  // namespace
}  // namespace kvcts::testing
