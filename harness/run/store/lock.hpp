// One writer per run: an advisory lock on a file of the run directory. The kernel releases it when the process dies,
// in any way. The descriptor is close-on-exec, so workers started with exec do not keep it.
#pragma once

#include <filesystem>

namespace kvcts::store {

class WriterLock {
 public:
  /// Throws Error naming the process that holds the lock if another writer is active.
  explicit WriterLock(const std::filesystem::path& file);
  ~WriterLock();
  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&& other) noexcept;

 private:
  int fd_{-1};
};

}  // namespace kvcts::store
