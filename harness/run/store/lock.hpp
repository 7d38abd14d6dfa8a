// One writer per run: an advisory lock on a file of the run directory. The kernel releases it when the process dies, however
// it dies. The descriptor is close-on-exec, so workers that were started with exec do not keep it.
#pragma once

#include <filesystem>

namespace kvcts::store {

class WriterLock {
 public:
  /// Throws Error naming the process that holds the lock, when another writer is at work.
  explicit WriterLock(const std::filesystem::path& file);
  ~WriterLock();
  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&& other) noexcept;

 private:
  int fd_{-1};
};

}  // namespace kvcts::store
