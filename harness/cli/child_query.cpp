#include "cli/child_query.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "cli/exit.hpp"
#include "cli/product.hpp"
#include "cli/run/run.hpp"
#include "process/installation.hpp"
#include "process/launcher.hpp"
#include "process/pointers.hpp"
#include "process/procfs.hpp"
#include "process/sandbox/sandbox.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {
namespace {

constexpr int filter_place = 3, answer_place = 4;
constexpr const char* flag = "--answer";

constexpr int lifeline_place = 5;
constexpr const char* lifeline_variable = "KVCTS_LIFELINE";

/// Inside: this process ends with the one outside, also where bubblewrap did not get so far as to see to that. Who was
/// outside says how it ended.
void hang_on() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGIO}) ::signal(number, SIG_DFL);
  ::fcntl(lifeline_place, F_SETFD, FD_CLOEXEC);
  ::fcntl(lifeline_place, F_SETOWN, ::getpid());
  ::fcntl(lifeline_place, F_SETFL, O_ASYNC);  // SIGIO when the other end is closed
  pollfd end{lifeline_place, POLLIN, 0};
  if (::poll(&end, 1, 0) != 0) ::_exit(exit_interrupted);
}

/// Ends a sandbox that was begun a moment ago, too: bubblewrap's inside waits for ever for one that was killed before it had
/// said "go on", and such an orphan comes to us (subreaper).
void end_all(pid_t pid) {
  ::kill(pid, SIGKILL);
  for (int round = 0; round < 500; ++round) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<process::ProcessStat> left = process::descendants(process::all_processes(), {::getpid()});
    if (left.empty()) return;
    for (const process::ProcessStat& stat : left) ::kill(stat.pid, SIGKILL);
    ::usleep(2000);
  }
}

}  // namespace

const std::vector<ChildQuery>& child_queries() {
  static const std::vector<ChildQuery> all{
      {"load", doctor::load_engine}, {"try", doctor::try_engine}, {"describe", describe_plugin}};
  return all;
}

ChildAnswer ask(std::string_view query, const nlohmann::json& about, const std::vector<std::string>& grants,
                const std::vector<std::string>& named, std::chrono::milliseconds deadline) {
  std::vector<std::string> argv{(process::program_folder() / "kvcts").string(), flag, std::string(query), about.dump()};
  process::UniqueFd filter;
  if (process::why_no_sandbox().empty()) {
    const process::Sandbox sandbox{grants, named, {}};
    filter = process::filter_of(sandbox);
    argv = process::sandboxed(sandbox, filter_place, argv);
  }
  const auto answer = [&] { return ask_program(argv, filter ? filter.get() : -1, filter_place, answer_place, deadline); };
  ChildAnswer first = answer();
  // Killed from outside (an operator, the kernel out of memory) says nothing about the plug-in: try again, then it counts.
  if (first.died != "SIGKILL") return first;
  if (filter) ::lseek(filter.get(), 0, SEEK_SET);  // bubblewrap reads it to its end
  return answer();
}

std::optional<int> inside(const std::vector<std::string>& grants) {
  if (!process::why_no_sandbox().empty()) {
    if (std::getenv(lifeline_variable) != nullptr) hang_on();
    ::prctl(PR_SET_DUMPABLE,
            1);  // transports reach from one of its processes into the other; there is nothing to hide from them
    return std::nullopt;
  }
  std::vector<std::string> argv = command_line();
  argv[0] = (process::program_folder() / "kvcts").string();
  const process::Sandbox sandbox{grants, argv, {}};
  const process::UniqueFd filter = process::filter_of(sandbox);
  std::vector<std::string> words = process::sandboxed(sandbox, filter_place, argv);
  std::vector<char*> pointers = process::pointers_to(words);
  int lifeline[2];
  if (::pipe2(lifeline, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "no pipe");
  const process::UniqueFd theirs(lifeline[0]), ours(lifeline[1]);
  // Interrupted, it ends what it has begun before it goes itself.
  sigset_t awaited, before;
  sigemptyset(&awaited);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    struct sigaction now{};
    ::sigaction(number, nullptr, &now);
    if (number == SIGCHLD || now.sa_handler != SIG_IGN) sigaddset(&awaited, number);  // nohup
  }
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t self = ::getpid(), pid = fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "no process");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self) ::_exit(exit_interrupted);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::setenv("KVCTS_SANDBOX", "off", 1);  // there is one around it
    ::setenv(lifeline_variable, "1", 1);
    const int above = lifeline_place + 1, lifted = ::fcntl(filter.get(), F_DUPFD_CLOEXEC, above),
              line = ::fcntl(theirs.get(), F_DUPFD_CLOEXEC, above);
    ::dup2(lifted, filter_place);
    ::dup2(line, lifeline_place);
    ::execv(pointers[0], pointers.data());
    ::_exit(exit_own_error);
  }
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    int number = 0;
    if (::sigwait(&awaited, &number) != 0 || number == SIGCHLD) continue;
    end_all(pid);
    throw supervisor::Interrupted();
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : exit_own_error;
}

bool handle_child_query(int argc, const char* const* argv) {
  if (argc != 4 || std::string_view(argv[1]) != flag || ::fcntl(answer_place, F_GETFD) < 0) return false;
  ::fcntl(answer_place, F_SETFD, FD_CLOEXEC);
  begin_answer(answer_place);
  for (const ChildQuery& query : child_queries()) {
    if (query.name == argv[2]) give_answer(answer_place, [&] { return query.answer(nlohmann::json::parse(argv[3])); });
  }
  return true;
}

}  // namespace kvcts::cli
