// Two processes on one device, while a kernel of one never ends: what does the other notice, and does the device work
// afterwards?
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "device/check/checks.hpp"
#include "device/memory.hpp"
#include "kernels/cuda/launch.hpp"

namespace kvcts::device::checks {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A second run of this program, in a role. Ends with its owner at the latest.
class Neighbour {
 public:
  Neighbour(const std::string& role, int device) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw CheckFailure("cannot create a pipe for a second process");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    const std::string ordinal = std::to_string(device);
    std::vector<char*> argv;
    for (const std::string& word :
         {std::string("kvcts-gpu-check"), std::string("--as"), role, std::string("--device"), ordinal})
      words_.push_back(word);
    for (std::string& word : words_) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int failed = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    out_ = ends[0];
    if (failed != 0) throw CheckFailure("cannot start a second process");
  }
  ~Neighbour() {
    end();
    ::close(out_);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  /// Waits for the first byte of its output; false: there was none in time.
  bool says_something(milliseconds patience) const {
    pollfd entry{out_, POLLIN, 0};
    char byte = 0;
    return ::poll(&entry, 1, static_cast<int>(patience.count())) == 1 && ::read(out_, &byte, 1) == 1;
  }
  /// Its exit status; -1: it did not end in time.
  int ends_within(milliseconds patience) {
    const auto until = Clock::now() + patience;
    for (int status = 0; Clock::now() < until; std::this_thread::sleep_for(milliseconds(10))) {
      if (::waitpid(pid_, &status, WNOHANG) != pid_) continue;
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return -1;
  }
  /// True: SIGKILL ended it, or it had ended before.
  bool end() {
    if (pid_ <= 0) return true;
    ::kill(pid_, SIGKILL);
    return ends_within(milliseconds(20'000)) >= 0;
  }

 private:
  std::vector<std::string> words_;
  pid_t pid_{-1};
  int out_{-1};
};

}  // namespace

int act_as(const std::string& role, Gpu& gpu) {
  if (role == "canary") {
    gpu.canary();
    return 0;
  }
  if (role != "hang") throw std::runtime_error("--as expects canary or hang, found '" + role + "'");
  OwnStream stream(gpu);
  DeviceBuffer word(gpu, 4);
  check(gpu.driver(), gpu.driver().set_words(word.address(), 0, 1, stream), "clearing");
  gpu.synchronize(stream);
  gpu.launch("kvcts_never_ends", cuda::HangArgs{static_cast<volatile cuda::u32*>(word.pointer()), 0}, 1, stream);
  std::printf("hanging\n");
  std::fflush(stdout);
  for (;;) ::pause();
}

std::string neighbours(DeviceBench& b) {
  const int device = b.ordinal;
  Neighbour hanging("hang", device);
  if (!hanging.says_something(milliseconds(60'000)))
    throw CheckFailure("a second process did not launch a kernel on this device within 60 s");
  const auto begin = Clock::now();
  std::string words;
  {
    Neighbour beside("canary", device);
    const int status = beside.ends_within(milliseconds(20'000));
    const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count();
    if (status > 0)
      throw CheckFailure("while a kernel of one process never ended, another's canary failed (status " +
                         std::to_string(status) + ")");
    b.numbers["beside_ms"] = status == 0 ? took : -1;
    words = status == 0 ? "while a kernel never ends, another process computes (" + std::to_string(took) + " ms)"
                        : "while a kernel never ends, another process waits (more than 20 s)";
    if (!beside.end()) throw CheckFailure("SIGKILL did not end a process on the device");
  }
  if (!hanging.end()) throw CheckFailure("SIGKILL did not end the process whose kernel never ends within 20 s");
  Neighbour after("canary", device);
  if (const int status = after.ends_within(milliseconds(30'000)); status != 0)
    throw CheckFailure(
        "after the hanging process was ended, the device's canary " +
        (status < 0 ? std::string("did not end within 30 s") : "failed with status " + std::to_string(status)));
  b.gpu.canary();
  return words + "; after its end the device works";
}

}  // namespace kvcts::device::checks
