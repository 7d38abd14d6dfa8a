#include "engines/support/ucx_messages.hpp"

#include <algorithm>
#include <cstring>

#include "engines/support/failure.hpp"
#include "engines/transport/kvcts_transport.h"

namespace kvcts::engines {
namespace {

void set_handler(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t handle, void* context) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = id;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = handle;
  handler.arg = context;
  if (const ucs_status_t status = ucp_worker_set_am_recv_handler(worker, &handler); status != UCS_OK) {
    throw Failure{KVCTS_E_BACKEND, std::string("ucp_worker_set_am_recv_handler: ") + ucs_status_string(status), status};
  }
}

Payload payload_of(void* data, std::size_t bytes, const ucp_am_recv_param_t& param) {
  return {data, bytes, (param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0};
}

}  // namespace

ucs_status_t Payload::receive(ucp_worker_h worker, void* to, ucp_am_recv_data_nbx_callback_t then, void* context) const {
  if (!rendezvous) {
    std::memcpy(to, data, bytes);
    return UCS_OK;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = then;
  param.user_data = context;
  const ucs_status_ptr_t started = ucp_am_recv_data_nbx(worker, data, to, bytes, &param);
  return UCS_PTR_IS_PTR(started) ? UCS_INPROGRESS : UCS_PTR_STATUS(started);
}

template <ucs_status_t (UcxMessages::*handle)(const Ask&, ucp_ep_h, const Payload&)>
void UcxMessages::listen(unsigned id) {
  const auto handler = [](void* self, const void* head, std::size_t head_bytes, void* data, std::size_t bytes,
                          const ucp_am_recv_param_t* param) {
    Ask ask;
    if (head_bytes != sizeof ask || (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0)
      return UCS_OK;  // not one of our requests
    std::memcpy(&ask, head, sizeof ask);
    return (static_cast<UcxMessages*>(self)->*handle)(ask, param->reply_ep, payload_of(data, bytes, *param));
  };
  set_handler(worker_, id, handler, this);
}

UcxMessages::UcxMessages(ucp_worker_h worker, Host& host) : worker_(worker), host_(host) {
  listen<&UcxMessages::on_put>(put);
  listen<&UcxMessages::on_get>(get);
  const auto answered = [](void* self, const void* head, std::size_t head_bytes, void* data, std::size_t bytes,
                           const ucp_am_recv_param_t* param) {
    Answer reported;
    if (head_bytes != sizeof reported) return UCS_OK;
    std::memcpy(&reported, head, sizeof reported);
    return static_cast<Host*>(self)->answered(reported, payload_of(data, bytes, *param));
  };
  set_handler(worker_, answer, answered, &host_);
}

bool UcxMessages::uses(std::uint64_t region) const {
  return std::any_of(services_.begin(), services_.end(), [&](const Service& service) { return service.region == region; });
}

UcxMessages::Service& UcxMessages::begin(const Ask& ask, ucp_ep_h peer, bool writes) {
  services_.push_front({this, peer, ask.region, {ask.token, ask.index, KVCTS_OK}, nullptr, {}});
  Service& service = services_.front();
  service.self = services_.begin();
  try {
    service.place = host_.place_of(ask, writes);
  } catch (const Failure& refused) {  // exceptions must not cross UCX's C code
    service.answer.status = refused.status;
  }
  return service;
}

ucs_status_t UcxMessages::on_put(const Ask& ask, ucp_ep_h peer, const Payload& payload) {
  Service& service = begin(ask, peer, true);
  if (service.place != nullptr && payload.bytes != ask.bytes)
    service.place = nullptr, service.answer.status = KVCTS_E_BACKEND;
  if (service.place != nullptr) {
    const auto arrived = [](void* request, ucs_status_t ended, std::size_t, void* context) {
      auto& of = *static_cast<Service*>(context);
      ucp_request_free(request);
      if (ended != UCS_OK) return of.owner->end(of);  // the connection is over: no peer waits for an answer
      of.owner->reply(of, nullptr, 0);
    };
    const ucs_status_t received = payload.receive(worker_, service.place, arrived, &service);
    if (received == UCS_INPROGRESS) return UCS_INPROGRESS;
    if (received != UCS_OK) service.answer.status = KVCTS_E_BACKEND;
  }
  reply(service, nullptr, 0);
  return UCS_OK;
}

ucs_status_t UcxMessages::on_get(const Ask& ask, ucp_ep_h peer, const Payload&) {
  Service& service = begin(ask, peer, false);
  reply(service, service.place, service.place != nullptr ? ask.bytes : 0);
  return UCS_OK;
}

void UcxMessages::reply(Service& service, const void* data, std::size_t bytes) {
  served_ += service.answer.status == KVCTS_OK;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &service;
  param.cb.send = [](void* request, ucs_status_t, void* context) {
    auto& of = *static_cast<Service*>(context);
    ucp_request_free(request);
    of.owner->end(of);
  };
  // Otherwise it was sent already, or it failed: then the connection is over.
  if (!UCS_PTR_IS_PTR(ucp_am_send_nbx(service.peer, answer, &service.answer, sizeof service.answer, data, bytes, &param)))
    end(service);
}

}  // namespace kvcts::engines
