// The peak memory of a piece of work: measured in a process of its own, so that nothing else is in the
// figure.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <string>

namespace kvcts::testing_support {

/// A line of /proc/self/status, in bytes.
inline double own_status(const char* key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == key && file >> kib) return kib * 1024;
  }
  return 0;
}

/// Bytes by which `work` raises the peak; -1 when it returns false, throws or dies.
template <class F>
double peak_of(F&& work) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak counts from here on
    const double before = own_status("VmRSS:");
    double grown = -1;
    try {
      if (work()) grown = own_status("VmHWM:") - before;
    } catch (const std::exception&) {
    }
    _exit(write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  double out = -1;
  close(ends[1]);
  if (read(ends[0], &out, sizeof out) != sizeof out) out = -1;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return out;
}

}  // namespace kvcts::testing_support
