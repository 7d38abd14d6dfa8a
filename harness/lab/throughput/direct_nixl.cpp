#include "engines/nixl/objects.hpp"
#include "engines/support/blob.hpp"
#include "lab/throughput/direct.hpp"

namespace kvcts::throughput {
namespace {

using namespace engines;
using namespace engines::nixl;

class Nixl final : public Direct {
 public:
  explicit Nixl(const Task& task) {
    nixl::check(library().create_agent("direct", Config{false, false, 0, 0, 1, 0, 0, false}, agent_), "agent");
    nixl::check(library().create_backend(agent_, "UCX", {{"ucx_error_handling_mode", "peer"}}, backend_), "backend");
    options_ = std::make_unique<CallOptions>(backend_);
    const auto base = reinterpret_cast<std::uint64_t>(task.memory.data());
    const Registration own(Memory::dram, base, task.memory.size());
    nixl::check(library().register_memory(agent_, own.get(), options_->get()), "registration");
    BlobReader blob("nixl", task.metadata);
    blob.value<std::uint64_t>();  // one region
    const auto there = blob.value<std::uint64_t>();
    blob.value<std::uint64_t>(), blob.value<std::uint64_t>();  // its length, its access
    std::string peer;
    nixl::check(library().load_metadata(agent_, blob.text(), peer), "metadata");
    Transfers local(Memory::dram), remote(Memory::dram);
    for (const auto& d : task.list) {
      local.add(base + d.local_offset, d.bytes);
      remote.add(there + d.remote_offset, d.bytes);
    }
    nixl::check(library().create_request(agent_, Op::write, local.get(), remote.get(), peer, request_, options_->get()),
                "request");
  }
  ~Nixl() override {
    library().release_request(agent_, request_);
    library().destroy_request(request_);
    options_.reset();
    library().destroy_agent(agent_);
  }
  void move() override {
    Status status = library().post(agent_, request_, options_->get());
    while (status == Status::in_progress) status = library().status(agent_, request_);
    nixl::check(status, "transfer");
  }

 private:
  Agent agent_{nullptr};
  Backend backend_{nullptr};
  std::unique_ptr<CallOptions> options_;
  Request request_{nullptr};
};

}  // namespace

std::unique_ptr<Direct> direct(const Task& task, unsigned char*) { return std::make_unique<Nixl>(task); }

}  // namespace kvcts::throughput
