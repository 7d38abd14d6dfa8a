#include "device/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace kvcts::device {
namespace {

constexpr std::array<std::pair<MemoryKind, std::string_view>, 5> names{{{MemoryKind::device, "device"},
                                                                        {MemoryKind::pool, "pool"},
                                                                        {MemoryKind::vmm, "vmm"},
                                                                        {MemoryKind::pinned, "pinned"},
                                                                        {MemoryKind::registered, "registered"}}};

class DeviceMemory final : public Allocation {
 public:
  DeviceMemory(const Gpu& gpu, std::uint64_t bytes) : driver_(gpu.driver()) {
    check(driver_, driver_.allocate(&address_, bytes), "allocating " + std::to_string(bytes) + " bytes of device memory");
    bytes_ = bytes;
  }
  ~DeviceMemory() override { driver_.free(address_); }

 private:
  const Driver& driver_;
};

class PoolMemory final : public Allocation {
 public:
  PoolMemory(const Gpu& gpu, std::uint64_t bytes) : gpu_(gpu), stream_(gpu) {
    const Driver& d = gpu.driver();
    check(d, d.allocate_async(&address_, bytes, stream_), "allocating " + std::to_string(bytes) + " bytes from the pool");
    bytes_ = bytes;
    check(d, d.synchronize_stream(stream_), "waiting for the pool");
  }
  ~PoolMemory() override {
    gpu_.driver().free_async(address_, stream_);
    gpu_.driver().synchronize_stream(stream_);
  }

 private:
  const Gpu& gpu_;
  OwnStream stream_;
};

class VmmMemory final : public Allocation {
 public:
  /// New pieces: three or more if the size allows, so that neighbouring bytes belong to different allocations.
  VmmMemory(const Gpu& gpu, std::uint64_t bytes) : gpu_(gpu), driver_(gpu.driver()) {
    AllocationProperties properties;
    properties.location.id = gpu.facts().ordinal;
    std::size_t grain = 0;
    check(driver_, driver_.granularity(&grain, &properties, 0), "querying the granularity of virtual memory");
    const std::uint64_t whole = (bytes + grain - 1) / grain * grain;
    const std::uint64_t piece = std::max<std::uint64_t>(grain, whole / 3 / grain * grain);
    bytes_ = bytes;
    try {
      reserve(whole, grain);
      for (std::uint64_t at = 0; at < whole;) {
        const std::uint64_t size = whole - at < 2 * piece ? whole - at : piece;
        AllocationHandle handle = 0;
        check(driver_, driver_.create_allocation(&handle, size, &properties, 0),
              "allocating " + std::to_string(size) + " bytes to map");
        adopt(handle, at, size);
        at += size;
      }
      allow();
    } catch (...) {
      close();
      throw;
    }
  }
  ~VmmMemory() override { close(); }

 private:
  struct Mapped {
    AllocationHandle handle;
    std::uint64_t at, bytes;
    bool mapped;
  };
  void reserve(std::uint64_t bytes, std::size_t alignment) {
    check(driver_, driver_.reserve(&address_, bytes, alignment, 0, 0),
          "reserving " + std::to_string(bytes) + " bytes of addresses");
    reserved_ = bytes;
  }
  void adopt(AllocationHandle handle, std::uint64_t at, std::uint64_t bytes) {
    pieces_.push_back({handle, at, bytes, false});
    check(driver_, driver_.map(address_ + at, bytes, 0, handle, 0), "mapping device memory");
    pieces_.back().mapped = true;
  }
  void allow() {
    Access access;
    access.location.id = gpu_.facts().ordinal;
    check(driver_, driver_.set_access(address_, reserved_, &access, 1), "allowing access to mapped device memory");
  }
  void close() {
    for (const Mapped& piece : pieces_) {
      if (piece.mapped) driver_.unmap(address_ + piece.at, piece.bytes);
      driver_.release_allocation(piece.handle);
    }
    if (reserved_ > 0) driver_.free_reserved(address_, reserved_);
  }

  const Gpu& gpu_;
  const Driver& driver_;
  std::uint64_t reserved_{0};
  std::vector<Mapped> pieces_;
};

class PinnedMemory final : public Allocation {
 public:
  PinnedMemory(const Gpu& gpu, std::uint64_t bytes) : driver_(gpu.driver()) {
    void* memory = nullptr;
    // 1: pinned for every context; 2: mapped into the device's addresses.
    check(driver_, driver_.allocate_host(&memory, bytes, 1 | 2),
          "allocating " + std::to_string(bytes) + " bytes of pinned host memory");
    host_ = static_cast<std::uint8_t*>(memory);
    bytes_ = bytes;
    const Status status = driver_.host_address(&address_, memory, 0);
    if (status != status::success) driver_.free_host(memory);
    check(driver_, status, "finding the device's address of pinned memory");
  }
  ~PinnedMemory() override { driver_.free_host(host_); }

 private:
  const Driver& driver_;
};

class RegisteredMemory final : public Allocation {
 public:
  RegisteredMemory(const Gpu& gpu, std::uint64_t bytes, void* existing) : driver_(gpu.driver()) {
    bytes_ = bytes;
    if (existing == nullptr) {
      void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (pages == MAP_FAILED)
        throw Error{status::out_of_memory, "the system has no " + std::to_string(bytes) + " bytes of memory to register"};
      own_ = existing = pages;
    }
    host_ = static_cast<std::uint8_t*>(existing);
    Status status = driver_.register_host(existing, bytes, 1 | 2);
    if (status == status::success) {
      status = driver_.host_address(&address_, existing, 0);
      if (status != status::success) driver_.unregister_host(existing);
    }
    if (status != status::success && own_ != nullptr) ::munmap(own_, bytes);
    check(driver_, status, "registering " + std::to_string(bytes) + " bytes of host memory with the device");
  }
  ~RegisteredMemory() override {
    driver_.unregister_host(host_);
    if (own_ != nullptr) ::munmap(own_, bytes_);
  }

 private:
  const Driver& driver_;
  void* own_{nullptr};
};

}  // namespace

std::string_view name(MemoryKind kind) {
  return std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.first == kind; })->second;
}

MemoryKind memory_kind_from_name(std::string_view text) {
  std::string known;
  for (const auto& [kind, called] : names) {
    if (called == text) return kind;
    known += (known.empty() ? "" : ", ") + std::string(called);
  }
  throw Error{status::invalid_value, "expected a kind of memory (" + known + "), found '" + std::string(text) + "'"};
}

std::string lack(const Gpu& gpu, MemoryKind kind) {
  const Facts& facts = gpu.facts();
  if (kind == MemoryKind::pool && !facts.memory_pools) return facts.name + " has no memory pools";
  if (kind == MemoryKind::vmm && !(facts.virtual_memory && facts.posix_handles)) {
    return facts.name + " has no virtual memory management with exportable handles";
  }
  if ((kind == MemoryKind::pinned || kind == MemoryKind::registered) && !facts.host_mapping)
    return facts.name + " cannot map host memory";
  return "";
}

std::unique_ptr<Allocation> allocate(const Gpu& gpu, MemoryKind kind, std::uint64_t bytes, void* existing) {
  if (std::string why = lack(gpu, kind); !why.empty()) throw Error{status::not_supported, std::move(why)};
  bytes = std::max<std::uint64_t>(bytes, 1);
  switch (kind) {
    case MemoryKind::device:
      break;
    case MemoryKind::pool:
      return std::make_unique<PoolMemory>(gpu, bytes);
    case MemoryKind::vmm:
      return std::make_unique<VmmMemory>(gpu, bytes);
    case MemoryKind::pinned:
      return std::make_unique<PinnedMemory>(gpu, bytes);
    case MemoryKind::registered:
      return std::make_unique<RegisteredMemory>(gpu, bytes, existing);
  }
  return std::make_unique<DeviceMemory>(gpu, bytes);
}

void DeviceBuffer::write(std::span<const std::uint8_t> from, Stream stream) {
  if (from.size() > bytes_)
    throw Error{status::invalid_value,
                "writing " + std::to_string(from.size()) + " bytes into a buffer of " + std::to_string(bytes_)};
  if (!from.empty())
    check(gpu_.driver(), gpu_.driver().copy_in(address(), from.data(), from.size(), stream), "copying to the device");
}

void DeviceBuffer::read(std::span<std::uint8_t> to, Stream stream) const {
  if (to.size() > bytes_)
    throw Error{status::invalid_value,
                "reading " + std::to_string(to.size()) + " bytes of a buffer of " + std::to_string(bytes_)};
  if (!to.empty())
    check(gpu_.driver(), gpu_.driver().copy_out(to.data(), address(), to.size(), stream), "copying from the device");
}

}  // namespace kvcts::device
