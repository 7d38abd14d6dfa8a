// Descriptors 0, 1 and 2, which every program takes for granted and nobody has to give it.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace kvcts::process {

/// Opens /dev/null on each of them that is closed; otherwise the next pipe or store would get its number, and be written
/// over. First line of every main(). A closed standard output gets one that cannot be written: what was asked to be printed
/// is lost, and must not seem printed.
inline void open_standard_files() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one: those below are open.
    if (::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) ::_exit(3);
  }
}

/// For programs that judge: no other process of this user can look into this one's memory or descriptors, or trace it.
inline void keep_private() {
#if !defined(__SANITIZE_ADDRESS__)  // LeakSanitizer traces its own process
  ::prctl(PR_SET_DUMPABLE, 0);
#endif
}

}  // namespace kvcts::process
