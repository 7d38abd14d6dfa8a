// Every kind of device-reachable memory that KV caches live in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/gpu.hpp"

namespace kvcts::device {

enum class MemoryKind : std::uint8_t {
  device,      ///< cuMemAlloc: what cudaMalloc returns
  pool,        ///< cuMemAllocAsync: the stream-ordered pool of frameworks
  vmm,         ///< cuMemCreate in several pieces, mapped side by side: expandable segments; exportable as descriptors
  pinned,      ///< cuMemHostAlloc: host memory that the device addresses
  registered,  ///< cuMemHostRegister on memory that another allocator owns
};
std::string_view name(MemoryKind kind);
/// Throws Error, which lists the kinds.
MemoryKind memory_kind_from_name(std::string_view name);
/// "" when the device supports it, else the reason.
std::string lack(const Gpu& gpu, MemoryKind kind);

/// An allocation of any kind, freed by its destructor. The device must be current.
class Allocation {
 public:
  virtual ~Allocation() = default;
  Address address() const { return address_; }  ///< for the device
  std::uint8_t* host() const { return host_; }  ///< nullptr where the host cannot access it
  std::uint64_t bytes() const { return bytes_; }

 protected:
  Address address_{0};
  std::uint8_t* host_{nullptr};
  std::uint64_t bytes_{0};
};
/// `existing`: for MemoryKind::registered, the memory to register (page-aligned by the driver); nullptr: new pages.
/// Throws Error; status::not_supported for a kind that the device lacks.
std::unique_ptr<Allocation> allocate(const Gpu& gpu, MemoryKind kind, std::uint64_t bytes, void* existing = nullptr);

/// Plain device memory for tables, results and tests, readable up to the next 16-byte boundary past its end.
class DeviceBuffer {
 public:
  DeviceBuffer(const Gpu& gpu, std::uint64_t bytes)
      : gpu_(gpu), bytes_(bytes), memory_(allocate(gpu, MemoryKind::device, bytes / 16 * 16 + 16)) {}
  void* pointer() const { return reinterpret_cast<void*>(memory_->address()); }
  Address address() const { return memory_->address(); }
  std::uint64_t bytes() const { return bytes_; }
  void write(std::span<const std::uint8_t> from, Stream stream);
  void read(std::span<std::uint8_t> to, Stream stream) const;

 private:
  const Gpu& gpu_;
  std::uint64_t bytes_;
  std::unique_ptr<Allocation> memory_;
};

}  // namespace kvcts::device
