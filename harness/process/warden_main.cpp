// kvcts-warden <run>: see warden.hpp. Its channel is descriptor 3.
#include <fcntl.h>

#include <cstdio>

#include "process/standard_files.hpp"
#include "process/warden.hpp"

int main(int argc, char** argv) {
  kvcts::process::open_standard_files();
  if (argc != 2 || fcntl(3, F_GETFD) < 0) {
    std::fprintf(stderr, "kvcts-warden: kvcts starts this program; it cannot run alone\n");
    return 2;
  }
  kvcts::process::keep_private();
  fcntl(3, F_SETFD, FD_CLOEXEC);
  kvcts::process::run_warden(kvcts::process::UniqueFd(3), argv[1]);
  return 0;
}
