// kvcts-host near HOST | far: see remote/near.hpp.
#include <fcntl.h>
#include <signal.h>

#include <cstdio>
#include <cstring>

#include "process/remote/far.hpp"
#include "process/remote/near.hpp"
#include "process/standard_files.hpp"

int main(int argc, char** argv) {
  kvcts::process::open_standard_files();
  ::signal(SIGPIPE, SIG_IGN);
  if (argc == 2 && std::strcmp(argv[1], "far") == 0) return kvcts::process::run_far();
  if (argc == 3 && std::strcmp(argv[1], "near") == 0 && fcntl(3, F_GETFD) >= 0) {
    fcntl(3, F_SETFD, FD_CLOEXEC);
    return kvcts::process::run_near(kvcts::process::UniqueFd(3), nlohmann::json::parse(argv[2]));
  }
  std::fprintf(stderr, "kvcts-host: kvcts starts this program; it cannot run alone\n");
  return 2;
}
