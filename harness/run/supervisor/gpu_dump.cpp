#include "run/supervisor/gpu_dump.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "process/procfs.hpp"

namespace kvcts::supervisor {

namespace {

constexpr std::int64_t most_bytes = std::int64_t{256} << 20;  // light dumps are a few MiB

process::UniqueFd folder_of(pid_t pid, const char* which) {
  return process::UniqueFd(::open(("/proc/" + std::to_string(pid) + "/" + which).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

/// Size of a regular file; -1 for anything else.
std::int64_t size_of(int fd) {
  struct stat found{};
  return fd >= 0 && ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode) ? found.st_size : -1;
}

std::runtime_error failed(const std::string& what) { return std::runtime_error(what + ": " + std::strerror(errno)); }

}  // namespace

GpuDump::GpuDump(pid_t pid) : root_(folder_of(pid, "root")), cwd_(folder_of(pid, "cwd")), pid_(pid) {
  const auto named = [&](const char* variable) {
    std::string name = process::environment_of(pid, variable);
    if (const auto at = name.find("%p"); at != std::string::npos)
      name.replace(at, 2, std::to_string(process::pid_inside(pid)));
    return name;
  };
  const std::string pipe = named("CUDA_COREDUMP_PIPE");
  file_ = named("CUDA_COREDUMP_FILE");
  if (pipe.empty() || file_.empty()) return;
  // The driver creates the pipe with its first context and reads it; without a reader this fails immediately.
  const process::UniqueFd asks = open(pipe, O_WRONLY | O_NONBLOCK);
  struct stat found{};
  asked_ = asks && ::fstat(asks.get(), &found) == 0 && S_ISFIFO(found.st_mode) && ::write(asks.get(), "1", 1) == 1;
  // The driver has it open, and the process that should remove it is about to be killed.
  if (asked_) remove(pipe);
}

process::UniqueFd GpuDump::open(const std::string& path, int flags) const {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC | ((flags & O_PATH) != 0 ? 0 : O_NOCTTY));  // O_PATH refuses it
  // An absolute name starts at the process's root; links in it would, too. A relative name contains none to follow.
  const bool absolute = path.starts_with('/');
  how.resolve = absolute ? RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS : RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
  return process::UniqueFd(
      static_cast<int>(::syscall(SYS_openat2, absolute ? root_.get() : cwd_.get(), path.c_str(), &how, sizeof how)));
}

void GpuDump::remove(const std::filesystem::path& path) const {
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  if (const process::UniqueFd at = open(folder, O_PATH | O_DIRECTORY)) ::unlinkat(at.get(), path.filename().c_str(), 0);
}

std::string GpuDump::advice(const std::string& id) {
  return "not requested; to keep one (a kernel that fails then aborts its process in place of an error):\n"
         "CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1 CUDA_ENABLE_LIGHTWEIGHT_COREDUMP=1 "
         "CUDA_COREDUMP_PIPE=/tmp/kvcts-gpu-dump.%p CUDA_COREDUMP_FILE=/tmp/kvcts-gpu-core.%p kvcts repro '" +
         id + "'\n";
}

std::int64_t GpuDump::bytes() const { return std::max<std::int64_t>(size_of(open(file_, O_RDONLY | O_NONBLOCK).get()), 0); }

std::string GpuDump::keep() const {
  const process::UniqueFd from = open(file_, O_RDONLY | O_NONBLOCK);
  const std::int64_t bytes = size_of(from.get());
  if (bytes < 0) throw failed("cannot read the GPU core dump");
  if (bytes > most_bytes)
    throw std::runtime_error("the GPU core dump has " + std::to_string(bytes) + " bytes: more than " +
                             std::to_string(most_bytes));
  std::string name =
      (std::filesystem::temp_directory_path() / ("kvcts-gpu-core." + std::to_string(pid_) + ".XXXXXX")).string();
  const process::UniqueFd to(::mkostemp(name.data(), O_CLOEXEC));
  if (!to) throw failed("cannot keep the GPU core dump");
  std::array<char, 65536> buffer;
  for (std::int64_t left = bytes; left > 0;) {
    const ssize_t n =
        ::read(from.get(), buffer.data(), std::min<std::size_t>(buffer.size(), static_cast<std::size_t>(left)));
    if (n <= 0 || ::write(to.get(), buffer.data(), static_cast<std::size_t>(n)) != n) {
      const auto reason = failed("cannot copy the GPU core dump");
      ::unlink(name.c_str());
      throw reason;
    }
    left -= n;
  }
  remove(file_);
  return name;
}

}  // namespace kvcts::supervisor
