// Put and get by active messages of UCX (engine ucx, verbs=am): message headers, and the target's half. A put carries
// its bytes and is answered once they are stored; the answer to a get carries them. Only the target knows where a
// region lies: an ask names region and offset, and the target refuses what it does not allow. UCX sends long messages
// by rendezvous, directly into place.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <list>

namespace kvcts::engines {

struct Ask {
  std::uint64_t token, index;           ///< of the request and its operation, returned in the answer
  std::uint64_t region, offset, bytes;  ///< at the target; the region by its handle there
};
struct Answer {
  std::uint64_t token, index;
  std::int64_t status;  ///< KVCTS_OK, or why it was refused
};

/// The bytes of a message in a UCX handler.
struct Payload {
  void* data;  ///< the bytes, or what stands for them in a rendezvous
  std::size_t bytes;
  bool rendezvous;
  /// Stores them at `to`. UCS_INPROGRESS: `then` is called when they have arrived, and the handler must return the same.
  ucs_status_t receive(ucp_worker_h worker, void* to, ucp_am_recv_data_nbx_callback_t then, void* context) const;
};

class UcxMessages {
 public:
  static constexpr unsigned put = 1, get = 2, answer = 3;  ///< ids of active messages

  class Host {
   public:
    /// Address of the requested range. Throws Failure if it is not allowed.
    virtual void* place_of(const Ask& ask, bool writes) = 0;
    /// An operation of this side was answered. Returns the UCX handler's result.
    virtual ucs_status_t answered(const Answer& answer, const Payload& payload) = 0;

   protected:
    ~Host() = default;
  };

  /// Throws Failure. Destroy the worker before this object.
  UcxMessages(ucp_worker_h worker, Host& host);
  UcxMessages(const UcxMessages&) = delete;
  UcxMessages& operator=(const UcxMessages&) = delete;

  bool idle() const { return services_.empty(); }
  bool uses(std::uint64_t region) const;
  std::uint64_t served() const { return served_; }

 private:
  /// One ask under way here.
  struct Service {
    UcxMessages* owner;
    ucp_ep_h peer;
    std::uint64_t region;
    Answer answer;
    void* place;  ///< NULL: refused
    std::list<Service>::iterator self;
  };
  template <ucs_status_t (UcxMessages::*handle)(const Ask&, ucp_ep_h, const Payload&)>
  void listen(unsigned id);
  ucs_status_t on_put(const Ask& ask, ucp_ep_h peer, const Payload& payload);
  ucs_status_t on_get(const Ask& ask, ucp_ep_h peer, const Payload& payload);
  Service& begin(const Ask& ask, ucp_ep_h peer, bool writes);
  void reply(Service& service, const void* data, std::size_t bytes);
  void end(Service& service) { services_.erase(service.self); }

  ucp_worker_h worker_;
  Host& host_;
  std::list<Service> services_;
  std::uint64_t served_{0};
};

}  // namespace kvcts::engines
