#include "process/memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace kvcts::process {

namespace {
[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }
}  // namespace

UniqueFd create_memory_file(const std::string& name, std::size_t bytes) {
  if (bytes == 0) {
    errno = EINVAL;
    fail("memory file '" + name + "': expected a size above 0, found 0");
  }
  UniqueFd fd(::memfd_create(name.substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail("memory file '" + name + "': memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    fail("memory file '" + name + "': " + std::to_string(bytes) + " bytes");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("memory file '" + name + "': seal");
  return fd;
}

std::size_t file_bytes(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) fail("size of a memory file");
  return static_cast<std::size_t>(info.st_size);
}

bool is_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && (seals & F_SEAL_GROW) != 0;
}

Mapping::Mapping(int fd, std::size_t bytes, bool writable, Pages pages) : bytes_(bytes != 0 ? bytes : file_bytes(fd)) {
  const int populate = pages == Pages::at_once ? MAP_POPULATE : 0;
  void* address = ::mmap(nullptr, bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | populate, fd, 0);
  if (address == MAP_FAILED) fail("mapping a memory file of " + std::to_string(bytes_) + " bytes");
  data_ = static_cast<std::uint8_t*>(address);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace kvcts::process
