#include "cli/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "process/pointers.hpp"
#include "process/unique_fd.hpp"

namespace kvcts::cli {
namespace {

constexpr std::size_t max_output = 64 * 1024;
constexpr char begun = '~';

struct ChildResult {
  std::string output;
  int status{0};  ///< as from waitpid
  bool in_time{false};
};

/// Reads the pipe until its end or the deadline, then ends and reaps the child (and what it left in its process group).
ChildResult collect(pid_t pid, int fd, std::chrono::milliseconds deadline) {
  ChildResult ended;
  const auto end = std::chrono::steady_clock::now() + deadline;
  std::array<char, 4096> buffer;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) break;
    pollfd wait{fd, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n <= 0) {
      ended.in_time = true;
      break;
    }
    if (ended.output.size() < max_output) ended.output.append(buffer.data(), static_cast<std::size_t>(n));
  }
  close(fd);
  // A child that closed its output but does not end gets a moment of grace within the deadline.
  while (ended.in_time && waitpid(pid, &ended.status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) ended.in_time = false;
    usleep(500);
  }
  if (!ended.in_time) {
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    waitpid(pid, &ended.status, 0);
  }
  return ended;
}

/// In the other process. Libraries chatter on standard output and error; the answer has a pipe of its own.
void be_quiet() {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
}

ChildAnswer read_answer(const ChildResult& ended, std::chrono::milliseconds deadline) {
  ChildAnswer answer;
  const std::string status = WIFEXITED(ended.status) ? std::to_string(WEXITSTATUS(ended.status)) : "";
  if (!ended.in_time) {
    answer.late = true;
    answer.error = "no answer within " + std::to_string(deadline.count()) + " ms";
  } else if (WIFSIGNALED(ended.status)) {
    answer.died = std::string("SIG") + sigabbrev_np(WTERMSIG(ended.status));
    answer.error = "ended by " + answer.died;
  } else if (ended.output.empty()) {
    answer.died = "exit " + status;
    answer.error = "ended with status " + status + " and no answer";
  } else if (ended.output.front() == '-') {
    answer.error = ended.output.substr(1);
  } else {
    answer.value = nlohmann::json::parse(ended.output.substr(1), nullptr, false);
    answer.ok = !answer.value.is_discarded();
    if (!answer.ok) answer.error = "answered with something that is not JSON";
  }
  return answer;
}

}  // namespace

void begin_answer(int fd) { [[maybe_unused]] const auto written = write(fd, &begun, 1); }

void give_answer(int fd, const std::function<nlohmann::json()>& query) {
  std::string text;
  try {
    text = "+" + query().dump();
  } catch (const std::exception& e) {
    text = std::string("-") + e.what();
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  _exit(0);
}

namespace {

/// Forks, has the other process `become` what answers at the descriptor that it is given, and hears it to its end.
ChildResult ask_process(const std::function<void(int answer)>& become, std::chrono::milliseconds deadline) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot ask what this machine has: no pipe");
  const pid_t pid = fork();
  if (pid < 0) {
    const int why = errno;
    close(ends[0]);
    close(ends[1]);
    throw std::system_error(why, std::generic_category(), "cannot ask what this machine has: no process");
  }
  if (pid == 0) {
    close(ends[0]);
    become(ends[1]);
    _exit(127);
  }
  close(ends[1]);
  return collect(pid, ends[0], deadline);
}

}  // namespace

ChildAnswer ask_child(const std::function<nlohmann::json()>& query, std::chrono::milliseconds deadline) {
  const auto become = [&](int end) {
    const int answer = fcntl(end, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);  // where the next lines do not write over it
    be_quiet();
    give_answer(answer, query);
  };
  return read_answer(ask_process(become, deadline), deadline);
}

ChildAnswer ask_program(const std::vector<std::string>& argv, int more, int more_place, int answer_place,
                        std::chrono::milliseconds deadline) {
  std::vector<std::string> words = argv;
  std::vector<char*> pointers = process::pointers_to(words);  // before the fork
  const process::UniqueFd errors(memfd_create("kvcts-errors", MFD_CLOEXEC));
  const auto become = [&](int end) {
    const int above = std::max(more_place, answer_place) + 1;
    const int answer = fcntl(end, F_DUPFD_CLOEXEC, above), other = more < 0 ? -1 : fcntl(more, F_DUPFD_CLOEXEC, above),
              error_end = fcntl(errors.get(), F_DUPFD_CLOEXEC, above);
    be_quiet();
    dup2(answer, answer_place);
    dup2(error_end, STDERR_FILENO);
    if (other >= 0) dup2(other, more_place);
    execv(pointers[0], pointers.data());
  };
  ChildResult ended = ask_process(become, deadline);
  constexpr int signalled = 128;
  if (ended.in_time && WIFEXITED(ended.status) && WEXITSTATUS(ended.status) > signalled &&
      sigabbrev_np(WEXITSTATUS(ended.status) - signalled) != nullptr)
    ended.status = WEXITSTATUS(ended.status) - signalled;  // as wait() tells a signal
  const bool started = ended.output.starts_with(begun);
  ended.output.erase(0, started ? 1 : 0);
  ChildAnswer answer = read_answer(ended, deadline);
  if (started || !ended.in_time || !WIFEXITED(ended.status)) return answer;
  char message[512];
  const ssize_t got = pread(errors.get(), message, sizeof message, 0);
  const std::string line(message, got > 0 ? static_cast<std::size_t>(got) : 0);
  answer.unstarted = true;
  answer.error = "did not start: " + line.substr(0, line.find('\n'));
  return answer;
}

}  // namespace kvcts::cli
