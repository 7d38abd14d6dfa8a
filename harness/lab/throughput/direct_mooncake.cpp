#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "engines/mooncake/library.hpp"
#include "engines/support/blob.hpp"
#include "engines/transport/packages.hpp"
#include "lab/throughput/direct.hpp"

namespace kvcts::throughput {
namespace {

using namespace engines;
using namespace engines::mooncake;

void check(const Status& status, const char* what) {
  if (status.code != 0) throw std::runtime_error(std::string(what) + ": " + describe(status));
}

class Mooncake final : public Direct {
 public:
  explicit Mooncake(const Task& task)
      : memory_(task.memory),
        library_(transport::package_folder(std::getenv(transport::package_variable))),
        engine_(library_, "127.0.0.1") {
    if (library_.register_memory(engine_.get(), memory_.data(), memory_.size(), "cpu:0", false, true) != 0)
      throw std::runtime_error("registration");
    BlobReader blob("mooncake", task.metadata);
    const Segment peer = library_.open_segment(engine_.get(), std::string(blob.text()));
    blob.value<std::int64_t>();   // its process
    blob.value<std::uint64_t>();  // one region
    const auto there = blob.value<std::uint64_t>();
    for (std::size_t i = 0; i < task.list.size(); ++i) {
      if (i % window == 0) batches_.emplace_back(library_.version);
      const auto& d = task.list[i];
      batches_.back().add(Op::write, reinterpret_cast<std::uint64_t>(memory_.data()) + d.local_offset, peer,
                          there + d.remote_offset, d.bytes);
    }
    tasks_ = task.list.size();
  }
  ~Mooncake() override { library_.unregister_memory(engine_.get(), memory_.data(), true); }
  void move() override {
    std::size_t left = tasks_;
    for (const Requests& requests : batches_) {
      const std::size_t count = std::min(window, left);
      left -= count;
      const Batch batch = library_.allocate_batch(engine_.get(), count);
      check(library_.submit(engine_.get(), batch, requests.words()), "submit");
      for (std::size_t i = 0; i < count; ++i) wait(batch, i);
      check(library_.free_batch(engine_.get(), batch), "freeing a batch");
    }
  }

 private:
  static constexpr std::size_t window = 1024;  // per batch, as in the plug-in: Mooncake's queue holds no more
  void wait(Batch batch, std::size_t index) {
    TaskStatus status{};
    do check(library_.task_status(engine_.get(), batch, index, status), "status");
    while (status.state == TaskState::waiting || status.state == TaskState::pending);
    if (status.state != TaskState::completed) throw std::runtime_error("a task ended as " + std::string(name(status.state)));
  }

  std::span<unsigned char> memory_;
  const Library library_;
  Engine engine_;
  std::vector<Requests> batches_;
  std::size_t tasks_{0};
};

}  // namespace

std::unique_ptr<Direct> direct(const Task& task, unsigned char*) { return std::make_unique<Mooncake>(task); }

}  // namespace kvcts::throughput
