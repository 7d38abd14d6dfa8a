// kvcts-launcher <run>: see launcher.hpp. Its channel is descriptor 3. kvcts-launcher probe: whether a sandbox holds.
#include <fcntl.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "process/launcher.hpp"
#include "process/sandbox/probe.hpp"
#include "process/standard_files.hpp"

int main(int argc, char** argv) {
  kvcts::process::open_standard_files();
  if (argc == 2 && std::strcmp(argv[1], "probe") == 0) {
    const std::string open = kvcts::process::probe_sandbox();
    if (!open.empty()) std::printf("the sandbox does not hold: %s\n", open.c_str());
    return open.empty() ? 0 : 1;
  }
  if (argc != 2 || fcntl(3, F_GETFD) < 0) {
    std::fprintf(stderr, "kvcts-launcher: kvcts starts this program; it cannot run alone\n");
    return 2;
  }
  kvcts::process::keep_private();
  fcntl(3, F_SETFD, FD_CLOEXEC);
  kvcts::process::run_launcher(kvcts::process::UniqueFd(3), argv[1]);
  return 0;
}
