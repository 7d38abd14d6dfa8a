#include "process/scratch_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <system_error>

namespace kvcts::process {

namespace {

constexpr const char* prefix = "kvcts-run-";

UniqueFd locked(const std::filesystem::path& file, int flags) {
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(fd) : UniqueFd{};
}

bool own_folder(const std::filesystem::path& path) {
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == ::geteuid();
}

void remove_those_of_the_dead(const std::filesystem::path& among) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(among, error), end; !error && it != end; it.increment(error)) {
    if (!it->path().filename().string().starts_with(prefix) || !own_folder(it->path())) continue;
    const UniqueFd lock = locked(it->path() / "lock", 0);
    std::error_code ignored;
    if (lock) std::filesystem::remove_all(it->path(), ignored);
  }
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const auto among = std::filesystem::temp_directory_path(error);
  if (error) return;
  remove_those_of_the_dead(among);
  std::string pattern = (among / prefix).string() + "XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return;
  path_ = pattern;
  lock_ = locked(path_ / "new", O_CREAT);  // named only once it is locked
  if (lock_) std::filesystem::rename(path_ / "new", path_ / "lock", error);
  ::setenv("TMPDIR", path_.c_str(), 1);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace kvcts::process
