// A run's folder for temporary files.
#pragma once

#include <filesystem>

#include "process/unique_fd.hpp"

namespace kvcts::process {

/// TMPDIR of this process and of all that it starts, removed at the end. Where none can be made, everything stays as it is.
/// Who is killed cannot remove its own, so the next one does: a folder is in use as long as its file `lock` is locked.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace kvcts::process
