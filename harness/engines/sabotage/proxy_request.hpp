// A request of the front itself, sent through the engine behind it: writes bytes to the peer or reads them there.
#pragma once

#include "engines/sabotage/real.hpp"
#include "engines/support/shared_memory.hpp"

namespace kvcts::engines::sabotage {

/// Memory registered with the engine behind the front.
class Staging {
 public:
  Staging(const Real& real, std::uint64_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  std::byte* data() const { return memory_.data(); }
  std::uint64_t handle() const { return handle_; }

 private:
  const Real& real_;
  File file_;
  Mapping memory_;
  std::uint64_t handle_{0};
};

/// Where a piece of a proxy request lies at the peer.
struct Piece {
  std::uint64_t region{0}, offset{0}, bytes{0};
};

class ProxyRequest {
 public:
  /// Prepares it; `pieces` lie end to end in its staging.
  ProxyRequest(const Real& real, std::uint64_t peer, std::uint32_t op, std::span<const Piece> pieces);
  ~ProxyRequest();
  ProxyRequest(const ProxyRequest&) = delete;
  ProxyRequest& operator=(const ProxyRequest&) = delete;
  std::byte* data() const { return staging_.data(); }
  std::int32_t post() { return real_(&kvcts_transport::post, request_); }
  std::int32_t poll() { return real_(&kvcts_transport::poll, request_, static_cast<kvcts_progress*>(nullptr)); }
  /// Waits for the end. Throws Failure(KVCTS_E_TIMED_OUT) after ten seconds.
  void wait();

 private:
  const Real& real_;
  Staging staging_;
  std::vector<kvcts_descriptor> list_;
  std::uint64_t request_{0};
};

}  // namespace kvcts::engines::sabotage
