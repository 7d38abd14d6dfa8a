#include <ucp/api/ucp.h>

#include <array>
#include <stdexcept>

#include "engines/support/blob.hpp"
#include "lab/throughput/direct.hpp"

namespace kvcts::throughput {
namespace {

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) throw std::runtime_error(std::string(what) + ": " + ucs_status_string(status));
}

class Ucx final : public Direct {
 public:
  explicit Ucx(const Task& task) : task_(task) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA;
    check(ucp_init(&params, nullptr, &context_), "ucp_init");
    ucp_worker_params_t worker{};
    check(ucp_worker_create(context_, &worker, &worker_), "ucp_worker_create");
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = task.memory.data(), map.length = task.memory.size();
    check(ucp_mem_map(context_, &map, &memory_), "ucp_mem_map");
    engines::BlobReader blob("ucx", task.metadata);
    blob.value<std::array<std::uint64_t, 2>>();  // which agent
    const std::string address(blob.text());
    blob.value<std::uint64_t>();  // one region
    there_ = blob.value<std::uint64_t>();
    blob.value<std::uint64_t>(), blob.value<std::uint32_t>(),
        blob.value<std::uint64_t>();  // its length, its access, its handle
    const std::string key(blob.text());
    ucp_ep_params_t ep{};
    ep.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep.address = reinterpret_cast<const ucp_address_t*>(address.data());
    check(ucp_ep_create(worker_, &ep, &ep_), "ucp_ep_create");
    check(ucp_ep_rkey_unpack(ep_, key.data(), &key_), "ucp_ep_rkey_unpack");
  }
  ~Ucx() override {
    ucp_rkey_destroy(key_);
    ucp_worker_destroy(worker_);
    ucp_mem_unmap(context_, memory_);
    ucp_cleanup(context_);
  }
  void move() override {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH;
    param.user_data = this, param.memh = memory_;
    param.cb.send = [](void* request, ucs_status_t, void* self) {
      --static_cast<Ucx*>(self)->in_flight_;
      ucp_request_free(request);
    };
    for (const auto& d : task_.list) {
      start(ucp_put_nbx(ep_, task_.memory.data() + d.local_offset, d.bytes, there_ + d.remote_offset, key_, &param));
      while (in_flight_ >= window) ucp_worker_progress(worker_);
    }
    param.op_attr_mask &= ~static_cast<std::uint32_t>(UCP_OP_ATTR_FIELD_MEMH);
    start(ucp_ep_flush_nbx(ep_, &param));
    while (in_flight_ > 0) ucp_worker_progress(worker_);
  }

 private:
  static constexpr int window = 4096;  // operations in flight, as in the plug-in
  void start(ucs_status_ptr_t returned) {
    if (UCS_PTR_IS_ERR(returned)) check(UCS_PTR_STATUS(returned), "a transfer");
    in_flight_ += UCS_PTR_IS_PTR(returned);
  }

  Task task_;
  ucp_context_h context_{nullptr};
  ucp_worker_h worker_{nullptr};
  ucp_mem_h memory_{nullptr};
  ucp_ep_h ep_{nullptr};
  ucp_rkey_h key_{nullptr};
  std::uint64_t there_{0};
  int in_flight_{0};
};

}  // namespace

std::unique_ptr<Direct> direct(const Task& task, unsigned char*) { return std::make_unique<Ucx>(task); }

}  // namespace kvcts::throughput
