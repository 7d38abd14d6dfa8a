// kvcts-checker: the process loop around class Checker. Started by the launcher. Channel: descriptor 3.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <vector>

#include "process/frames.hpp"
#include "process/standard_files.hpp"
#include "run/checker/checker.hpp"

int main() {
  using namespace kvcts;
  process::open_standard_files();
  if (::fcntl(3, F_GETFD) < 0) {
    std::fprintf(stderr, "kvcts-checker is started by kvcts; it is of no use alone\n");
    return 2;
  }
  process::keep_private();
  ::fcntl(3, F_SETFD, FD_CLOEXEC);
  ::signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {  // each open case holds a descriptor a region
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  try {
    process::Channel channel{process::UniqueFd(3)};
    checker::Checker checker;
    for (;;) {
      process::Message message = channel.receive();
      std::vector<int> fds;  // stay the checker's; the channel sends copies
      nlohmann::json reply = checker.handle(message.body, fds);
      reply["seq"] = message.body.value("seq", std::uint64_t{0});
      channel.send(reply, fds);
    }
  } catch (const process::FrameError& error) {
    if (error.fault == process::FrameFault::eof) return 0;
    std::fprintf(stderr, "kvcts-checker: %s\n", error.what());
    return 1;
  }
}
