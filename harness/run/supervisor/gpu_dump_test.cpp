#include "run/supervisor/gpu_dump.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace kvcts::supervisor {
namespace {

namespace fs = std::filesystem;

template <class Condition>
bool eventually(Condition&& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(GpuDump, IsCollectedAndRemoved) {
  std::string folder = (fs::temp_directory_path() / "kvcts-gpu-dump-test.XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string pipe = "CUDA_COREDUMP_PIPE=" + folder + "/pipe.%p", file = "CUDA_COREDUMP_FILE=" + folder + "/core.%p",
                    where = "WHERE=" + folder;
  const char* const environment[]{pipe.c_str(), file.c_str(), where.c_str(), "PATH=/usr/bin:/bin", nullptr};
  const pid_t pid = ::fork();
  if (pid == 0) {  // a driver's part: a pipe of its own, and a dump when a byte comes
    ::execle("/bin/sh", "sh", "-c",
             "mkfifo $WHERE/pipe.$$ && exec 3<>$WHERE/pipe.$$ && : >$WHERE/ready && dd bs=1 count=1 <&3 >$WHERE/core.$$ "
             "2>/dev/null && exec sleep 600",
             nullptr, environment);
    ::_exit(127);
  }
  ASSERT_TRUE(eventually([&] { return fs::exists(folder + "/ready"); }));
  const GpuDump dump(pid);
  ASSERT_TRUE(dump.asked());
  ASSERT_TRUE(eventually([&] { return dump.bytes() > 0; }));
  const fs::path kept = dump.keep();
  EXPECT_EQ(fs::file_size(kept), 1U);
  fs::remove(kept);
  EXPECT_FALSE(fs::exists(folder + "/pipe." + std::to_string(pid)));
  EXPECT_FALSE(fs::exists(folder + "/core." + std::to_string(pid)));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  fs::remove_all(folder);
}

TEST(GpuDump, IsNotRequestedUnlessEnabled) { EXPECT_FALSE(GpuDump(::getpid()).asked()); }

}  // namespace
}  // namespace kvcts::supervisor
