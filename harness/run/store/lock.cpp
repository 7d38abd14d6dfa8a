#include "run/store/lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "run/store/error.hpp"

namespace kvcts::store {

WriterLock::WriterLock(const std::filesystem::path& file) {
  fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw Error(fmt::format("run lock {}: cannot be opened ({})", file.string(), std::strerror(errno)));
  int got = 0;
  do {
    got = ::flock(fd_, LOCK_EX | LOCK_NB);
  } while (got != 0 && errno == EINTR);
  if (got != 0) {
    const int why = errno;
    std::array<char, 32> holder{};
    const auto size = ::pread(fd_, holder.data(), holder.size() - 1, 0);
    ::close(std::exchange(fd_, -1));
    if (why != EWOULDBLOCK) throw Error(fmt::format("run lock {}: cannot be taken ({})", file.string(), std::strerror(why)));
    std::string process = size > 0 ? std::string(holder.data(), static_cast<std::size_t>(size)) : "";
    while (!process.empty() && process.back() == '\n') process.pop_back();
    throw Error(fmt::format("run {}: another process{}{} is writing to it; wait for it to end, or use another run directory",
                            file.parent_path().string(), process.empty() ? "" : " ", process));
  }
  // Only for the message above; the kernel holds the lock itself.
  const std::string self = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd_, 0) == 0) [[maybe_unused]]
    const auto written = ::pwrite(fd_, self.data(), self.size(), 0);
}

WriterLock::~WriterLock() {
  if (fd_ >= 0) ::close(fd_);
}

WriterLock::WriterLock(WriterLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

WriterLock& WriterLock::operator=(WriterLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

}  // namespace kvcts::store
