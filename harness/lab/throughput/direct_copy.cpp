#include <cstring>

#include "lab/throughput/direct.hpp"

namespace kvcts::throughput {
namespace {

class Copy final : public Direct {
 public:
  Copy(const Task& task, unsigned char* there) : task_(task), there_(there) {}
  void move() override {
    for (const auto& d : task_.list) std::memmove(there_ + d.remote_offset, task_.memory.data() + d.local_offset, d.bytes);
  }

 private:
  Task task_;
  unsigned char* there_;
};

}  // namespace

std::unique_ptr<Direct> direct(const Task& task, unsigned char* there) { return std::make_unique<Copy>(task, there); }

}  // namespace kvcts::throughput
