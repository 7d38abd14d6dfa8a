#include "engines/sabotage/proxy_request.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>

#include "engines/transport/patience.hpp"

namespace kvcts::engines::sabotage {
namespace {

constexpr std::chrono::seconds longest{10};

std::uint64_t bytes_of(std::span<const Piece> pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

File memory_file(std::uint64_t bytes) {
  File file(memfd_create("kvcts-front", MFD_CLOEXEC));
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw Failure{KVCTS_E_NO_RESOURCES, "cannot create a memory file of " + std::to_string(bytes) + " bytes"};
  return file;
}

}  // namespace

Staging::Staging(const Real& real, std::uint64_t bytes)
    : real_(real),
      file_(memory_file(std::max<std::uint64_t>(1, bytes))),
      memory_(file_.get(), std::max<std::uint64_t>(1, bytes), true) {
  kvcts_region region{};
  region.size = sizeof region;
  region.fd = file_.get();
  region.address = memory_.data();
  region.bytes = memory_.bytes();
  region.access = KVCTS_ACCESS_LOCAL;
  real_(&kvcts_transport::register_region, static_cast<const kvcts_region*>(&region), &handle_);
}
Staging::~Staging() { real_.api().deregister_region(real_.get(), handle_); }

ProxyRequest::ProxyRequest(const Real& real, std::uint64_t peer, std::uint32_t op, std::span<const Piece> pieces)
    : real_(real), staging_(real, bytes_of(pieces)) {
  std::uint64_t at = 0;
  for (const Piece& piece : pieces) {
    list_.push_back({staging_.handle(), at, piece.region, piece.offset, piece.bytes});
    at += piece.bytes;
  }
  kvcts_transfer transfer{};
  transfer.size = sizeof transfer;
  transfer.peer = peer;
  transfer.op = op;
  transfer.descriptors = list_.data();
  transfer.count = list_.size();
  real_(&kvcts_transport::prepare, static_cast<const kvcts_transfer*>(&transfer), &request_);
}
ProxyRequest::~ProxyRequest() { real_.api().release(real_.get(), request_); }

void ProxyRequest::wait() {
  const auto end = std::chrono::steady_clock::now() + longest;
  transport::Patience patience;
  for (std::int32_t status = post(); status == KVCTS_IN_PROGRESS; status = poll()) {
    if (std::chrono::steady_clock::now() > end)
      throw Failure{KVCTS_E_TIMED_OUT, "one of the front's own requests did not end in 10 s"};
    patience.pause();
  }
}

}  // namespace kvcts::engines::sabotage
