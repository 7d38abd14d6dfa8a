#include "engines/support/mirror.hpp"

#include <algorithm>
#include <cstring>

namespace kvcts::engines {

using device::check;

Mirror::Mirror(device::Gpu& gpu, device::MemoryKind kind, std::byte* host, std::uint64_t bytes)
    : gpu_(gpu), kind_(kind), host_(host), bytes_(bytes) {
  gpu_.make_current();
  memory_ = device::allocate(gpu_, kind, bytes);
  address_ = memory_->address();
  pinned_ = device::allocate(gpu_, device::MemoryKind::pinned, bytes);
}

Mirror::Mirror(device::Gpu& gpu, const device::IpcHandle& handle, std::byte* host, std::uint64_t bytes)
    : gpu_(gpu), kind_(device::MemoryKind::device), host_(host), bytes_(bytes) {
  gpu_.make_current();
  pinned_ = device::allocate(gpu_, device::MemoryKind::pinned, bytes);
  check(gpu_.driver(), gpu_.driver().ipc_open(&address_, handle, 1), "opening the peer's device memory (CUDA IPC)");
  opened_ = true;
}

Mirror::~Mirror() {
  gpu_.driver().set_current(gpu_.context());
  if (opened_) gpu_.driver().ipc_close(address_);
}

std::optional<device::IpcHandle> Mirror::handle() const {
  if (kind_ != device::MemoryKind::device || opened_) return std::nullopt;
  device::IpcHandle out{};
  if (gpu_.driver().ipc_export(&out, address_) != device::status::success) return std::nullopt;
  return out;
}

void Mirror::begin(device::Stream stream) {
  if (under_way_++ > 0 || bytes_ == 0) return;
  abandoned_ = false;
  std::memcpy(pinned_->host(), host_, bytes_);
  check(gpu_.driver(), gpu_.driver().copy_in(address_, pinned_->host(), bytes_, stream), "copying a region to the device");
}

void Mirror::download(device::Stream stream) {
  if (bytes_ == 0) return;
  check(gpu_.driver(), gpu_.driver().copy_out(pinned_->host(), address_, bytes_, stream),
        "copying a region from the device");
}

void Mirror::settle(std::span<const Range> ranges, const std::byte* base, bool written) {
  const bool alone = --under_way_ == 0 && !abandoned_;
  if (!written) return;
  if (alone && bytes_ > 0) std::memcpy(host_, pinned_->host(), bytes_);
  if (alone) return;
  for (const Range& range : ranges) std::memcpy(range.host, pinned_->host() + (range.host - base), range.bytes);
}

void Mirror::abandon() {
  --under_way_;
  abandoned_ = true;
}

}  // namespace kvcts::engines
