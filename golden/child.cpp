#include "golden/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "process/unique_fd.hpp"

namespace kvcts::golden {
namespace {

using Clock = std::chrono::steady_clock;
using process::UniqueFd;

constexpr std::size_t max_err = 64 << 10;

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) == 0) read.reset(ends[0]), write.reset(ends[1]);
  }
};

/// Appends available bytes; false at the end of the stream.
bool drain(int fd, std::string& into, std::size_t limit) {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n > 0 && into.size() <= limit) into.append(buffer.data(), static_cast<std::size_t>(n));
  return n > 0;
}

/// In a process group of its own. Returns an error number, or 0.
int spawn(const std::vector<std::string>& argv, int input, const Pipe& out, const Pipe& err, pid_t& pid) {
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  if (input >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  } else {
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int failed = ::posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return failed;
}

}  // namespace

std::string ChildResult::how(const ChildLimits& limits) const {
  switch (end) {
    case End::exited:
      return "exit status " + std::to_string(code);
    case End::signalled: {
      const char* abbreviation = ::sigabbrev_np(code);
      return std::string("crashed with SIG") + (abbreviation != nullptr ? abbreviation : std::to_string(code));
    }
    case End::deadline:
      return "did not finish within " + std::to_string(limits.deadline.count()) + " ms";
    case End::overflow:
      return "wrote more than " + std::to_string(limits.output_bytes) + " bytes";
    case End::not_started:
      return std::string("could not be started: ") + std::strerror(code);
  }
  return "?";
}

ChildResult run_child(const std::vector<std::string>& argv, int input, const ChildLimits& limits) {
  ChildResult result;
  Pipe out, err;
  if (!out.write || !err.write) {
    result.code = errno;
    return result;
  }
  pid_t pid = -1;
  const int failed = spawn(argv, input, out, err, pid);
  if (failed != 0) {
    result.code = failed;
    return result;
  }
  out.write.reset();
  err.write.reset();

  const auto until = Clock::now() + limits.deadline;
  std::array<pollfd, 2> fds{pollfd{out.read.get(), POLLIN, 0}, pollfd{err.read.get(), POLLIN, 0}};
  auto stopped = ChildResult::End::exited;
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) {
      stopped = ChildResult::End::deadline;
      break;
    }
    if (::poll(fds.data(), fds.size(), static_cast<int>(std::min<long long>(left, 1000))) < 0) continue;
    if (fds[0].revents != 0 && !drain(fds[0].fd, result.out, limits.output_bytes)) fds[0].fd = -1;
    if (fds[1].revents != 0 && !drain(fds[1].fd, result.err, max_err)) fds[1].fd = -1;
    if (result.out.size() > limits.output_bytes) {
      stopped = ChildResult::End::overflow;
      break;
    }
  }
  // Both streams are closed, or we gave up. A child that closed them and keeps running meets the same deadline.
  int status = 0;
  while (stopped == ChildResult::End::exited) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_pid == pid) break;
    if (Clock::now() >= until) stopped = ChildResult::End::deadline;
    ::poll(nullptr, 0, 2);
  }
  ::kill(-pid, SIGKILL);  // the child is not reaped yet, so the group number is still its own
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.end = stopped;
  if (stopped == ChildResult::End::exited && WIFSIGNALED(status)) {
    result.end = ChildResult::End::signalled;
    result.code = WTERMSIG(status);
  } else if (WIFEXITED(status)) {
    result.code = WEXITSTATUS(status);
  }
  return result;
}

}  // namespace kvcts::golden
