// A run's folder for temporary files.
#pragma once

#include <filesystem>

#include "process/unique_fd.hpp"

namespace kvcts::process {

/// TMPDIR of this process and of everything it starts, removed at the end. If none can be created, TMPDIR stays
/// unchanged. A killed process leaves its folder to the next one: a folder is in use while its file `lock` is locked.
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
