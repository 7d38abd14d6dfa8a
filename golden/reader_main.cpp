// kvcts-golden-reader [DTYPE...] < FILE.h5 > DUMP
//
// The only program of the suite that opens golden files with libhdf5. It reads the file's bytes (checked by the parent) from
// standard input, and writes one frame: "KVGOLD01", u64 header length, a JSON header, the bytes of the data sets. Without
// arguments: all dtypes. A damaged file may end it in any way; the parent turns every end but exit status 0 into one error.
#include <sys/prctl.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden/h5_tree.hpp"

namespace {

void limit(int what, rlim_t value) {
  const rlimit both{value, value};
  ::setrlimit(static_cast<__rlimit_resource>(what), &both);
}

std::string all_of_stdin() {
  std::string bytes;
  std::vector<char> buffer(1 << 20);
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), stdin)) > 0;) bytes.append(buffer.data(), n);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, 60);
#ifndef __SANITIZE_ADDRESS__
  limit(RLIMIT_AS, rlim_t{4} << 30);
#endif
  try {
    const auto dump = kvcts::golden::read_tree(all_of_stdin(), std::vector<std::string>(argv + 1, argv + argc));
    const std::uint64_t length = dump.header.size();
    bool good =
        std::fwrite("KVGOLD01", 1, 8, stdout) == 8 && std::fwrite(&length, 1, sizeof length, stdout) == sizeof length;
    good = good && std::fwrite(dump.header.data(), 1, dump.header.size(), stdout) == dump.header.size();
    good = good && std::fwrite(dump.blobs.data(), 1, dump.blobs.size(), stdout) == dump.blobs.size();
    if (!good || std::fflush(stdout) != 0) throw std::runtime_error("standard output cannot be written");
    return 0;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "%s\n", fault.what());
    return 1;
  }
}
