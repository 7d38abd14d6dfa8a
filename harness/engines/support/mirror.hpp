// A copy of a region's bytes in device memory. The suite's regions are host memory; an engine that moves device
// memory gives each a mirror. Host bytes go in before a transfer and come out when it is done; in between, only the
// device has the bytes.
//
// Copies between host and mirror go through pinned memory of the mirror, so that enqueueing never waits and the
// host's bytes change only in settle().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "device/gpu.hpp"
#include "device/memory.hpp"

namespace kvcts::engines {

class Mirror {
 public:
  /// Of memory mapped at `host` in this process. `gpu` outlives it.
  Mirror(device::Gpu& gpu, device::MemoryKind kind, std::byte* host, std::uint64_t bytes);
  /// Of a peer's region: opens the peer's mirror. Throws device::Error if the driver does not allow it.
  Mirror(device::Gpu& gpu, const device::IpcHandle& handle, std::byte* host, std::uint64_t bytes);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  device::Gpu& gpu() const { return gpu_; }
  std::uint64_t bytes() const { return bytes_; }
  /// Device address of a host address within the region mapped at `host`.
  device::Address address(const std::byte* inside, const std::byte* host) const {
    return address_ + static_cast<std::uint64_t>(inside - host);
  }
  /// How another process opens it; nullopt for kinds that CUDA IPC does not support.
  std::optional<device::IpcHandle> handle() const;

  /// A transfer begins: enqueues host -> mirror, unless another is under way and the mirror has the current bytes.
  void begin(device::Stream stream);
  void download(device::Stream stream);  ///< enqueues mirror -> pinned memory
  /// Call after the stream has passed the download. Copies pinned memory -> host: all of it, so that a stray device
  /// write shows; only the ranges (host addresses; `base` is the region's) while other transfers are under way whose
  /// bytes must not arrive yet or ever. Nothing if the transfer only read.
  struct Range {
    std::byte* host;
    std::uint64_t bytes;
  };
  void settle(std::span<const Range> ranges, const std::byte* base, bool written);
  /// A transfer was abandoned.
  void abandon();

 private:
  device::Gpu& gpu_;
  device::MemoryKind kind_;
  std::byte* host_;
  std::uint64_t bytes_;
  std::unique_ptr<device::Allocation> memory_, pinned_;
  device::Address address_{0};
  bool opened_{false};
  int under_way_{0};
  bool abandoned_{false};  ///< the mirror has bytes that must not reach the host
};

}  // namespace kvcts::engines
