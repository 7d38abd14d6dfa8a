// Descriptors 0, 1 and 2: every program relies on them, but its parent may have closed them.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace kvcts::process {

/// Opens /dev/null on each closed one; otherwise the next pipe or store would get its number and be overwritten. Call
/// it first in every main(). A closed standard output becomes unwritable: lost output must not look printed.
inline void open_standard_files() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // open() returns this number: all lower ones are open.
    if (::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) ::_exit(3);
  }
}

/// For programs that judge: no other process of this user can trace this one or read its memory or descriptors.
inline void keep_private() {
#if !defined(__SANITIZE_ADDRESS__)  // LeakSanitizer traces its own process
  ::prctl(PR_SET_DUMPABLE, 0);
#endif
}

}  // namespace kvcts::process
