// A region's bytes in memory of a device. The suite's regions are host memory; an engine that is to move device memory gives
// each a mirror: what the host has goes in before a transfer, and comes out when it is done. In between the bytes are on the
// device only.
//
// Copies between host and mirror pass through pinned memory of the mirror, so that nothing waits while it is enqueued and
// the host's bytes change in settle() alone.
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
  /// Of memory that this process reaches at `host`. `gpu` outlives it.
  Mirror(device::Gpu& gpu, device::MemoryKind kind, std::byte* host, std::uint64_t bytes);
  /// Of a peer's region: the peer's mirror, opened here. Throws device::Error where the driver does not allow it.
  Mirror(device::Gpu& gpu, const device::IpcHandle& handle, std::byte* host, std::uint64_t bytes);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  device::Gpu& gpu() const { return gpu_; }
  std::uint64_t bytes() const { return bytes_; }
  /// Device address of a host address inside of the region that is mapped at `host`.
  device::Address address(const std::byte* inside, const std::byte* host) const {
    return address_ + static_cast<std::uint64_t>(inside - host);
  }
  /// How another process opens it; nothing for kinds that CUDA IPC does not know.
  std::optional<device::IpcHandle> handle() const;

  /// A transfer begins: enqueues host -> mirror, unless one is under way and the mirror is the truth.
  void begin(device::Stream stream);
  void download(device::Stream stream);  ///< enqueues mirror -> pinned memory
  /// After the stream has passed the download: pinned memory -> host. All of it, so that a stray write of the device is
  /// seen; only the ranges (host addresses; `base` is the region's) while other transfers are under way whose bytes must not
  /// arrive yet, or never. Nothing where the transfer only read.
  struct Range {
    std::byte* host;
    std::uint64_t bytes;
  };
  void settle(std::span<const Range> ranges, const std::byte* base, bool written);
  /// A transfer is given up.
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
