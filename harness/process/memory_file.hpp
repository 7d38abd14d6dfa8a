// Memory that outlives the process that writes it: sealed memory files (memfd) and their mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "process/unique_fd.hpp"

namespace kvcts::process {

/// Creates a memory file of `bytes` bytes (zeros, allocated when touched), close-on-exec. It is sealed against
/// shrinking, growing and further seals, so that no holder can make another's mapping fault. Throws
/// std::system_error; bytes must be > 0.
UniqueFd create_memory_file(const std::string& name, std::size_t bytes);

/// Size of the file that a descriptor refers to. Throws std::system_error.
std::size_t file_bytes(int fd);

/// True if `fd` is a memory file sealed against shrinking and growing. Check this before you map another process's
/// file.
bool is_sealed(int fd);

/// When the pages of a mapping are entered: all at once (cheaper if every byte is used), or each on first touch.
enum class Pages : std::uint8_t { at_once, as_touched };

/// A shared mapping of a whole file, unmapped by its destructor. Movable.
class Mapping {
 public:
  Mapping() = default;
  /// Maps `bytes` bytes of `fd` (0 = the whole file), readable, and writable on request. The descriptor may be closed
  /// afterwards.
  Mapping(int fd, std::size_t bytes, bool writable = true, Pages pages = Pages::at_once);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  std::span<std::uint8_t> bytes() const { return {data_, bytes_}; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::uint8_t* data_{nullptr};
  std::size_t bytes_{0};
};

/// A memory file and its mapping in this process.
struct MemoryFile {
  MemoryFile() = default;
  MemoryFile(const std::string& name, std::size_t bytes) : fd(create_memory_file(name, bytes)), map(fd.get(), bytes) {}
  UniqueFd fd;
  Mapping map;
};

}  // namespace kvcts::process
