#include "python/probe/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "device/region.hpp"
#include "kernels/cuda/image.hpp"

namespace kvcts::probe {

namespace {

using device::Address;

// One context per device, for the life of the process, as in frameworks.
device::Gpu& gpu(int ordinal) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<device::Gpu>> all;
  const std::lock_guard lock(mutex);
  std::string reason;
  const device::Driver* const driver = device::driver(reason);
  if (!has_device_code() && !(driver && driver->modelled))
    throw layout::Error(
        fmt::format("found a tensor on cuda:{}, but this kvcts was built without CUDA: build it with nvcc, or "
                    "hand over tensor.cpu()",
                    ordinal));
  if (!driver)
    throw layout::Error(fmt::format("found a tensor on cuda:{}, but no driver can reach it: {}", ordinal, reason));
  auto& one = all[ordinal];
  if (!one) one = std::make_unique<device::Gpu>(*driver, ordinal);
  one->make_current();
  return *one;
}

Address address(const TensorRange& range) { return reinterpret_cast<Address>(range.bytes.data()); }
bool whole_vectors(const TensorRange& range) { return address(range) % 16 == 0 && range.bytes.size() % 16 == 0; }

// A copy of the same tensors on the host.
struct Copy {
  std::vector<std::vector<std::uint8_t>> memory;
  Bound bound;
};
Copy on_host(device::Gpu& of, const Bound& bound) {
  Copy out{{}, bound};
  const device::OwnStream stream(of);
  for (std::size_t a = 0; a < bound.ranges.size(); ++a) {
    auto& bytes = out.memory.emplace_back(bound.ranges[a].bytes.size());
    check(of.driver(), of.driver().copy_out(bytes.data(), address(bound.ranges[a]), bytes.size(), stream),
          "copying a tensor to the host");
  }
  of.synchronize(stream);
  for (std::size_t a = 0; a < out.memory.size(); ++a) out.bound.ranges[a].bytes = out.memory[a];
  return out;
}

device::Image image(const Bound& bound, std::size_t allocation, const std::vector<kernels::BlockContent>& blocks,
                    const Content& content) {
  device::Image out{
      bound.ranges[allocation].bytes.size(), 0, poison_of(content, static_cast<int>(allocation)), {}, blocks, content.key,
      unblocked_generation(content)};
  for (const layout::Plane& plane : bound.cache.planes)
    if (plane.allocation == static_cast<int>(allocation) && !blocks.empty()) out.planes.push_back(plane);
  return out;
}

void settle(device::Gpu& of) { check(of.driver(), of.driver().synchronize(), "waiting for what was queued on the device"); }

}  // namespace

bool has_device_code() { return !cuda::device_image().empty(); }

void fill_on_device(const Subject& subject, const Bound& bound, const Content& content, int ordinal, int threads) {
  device::Gpu& of = gpu(ordinal);
  settle(of);
  const auto blocks = blocks_of(content.requests, subject.geometry);
  const device::OwnStream stream(of);
  if (content.poison && std::all_of(bound.ranges.begin(), bound.ranges.end(), whole_vectors)) {
    for (std::size_t a = 0; a < bound.ranges.size(); ++a) {
      device::RegionWork work(of, image(bound, a, blocks, content), stream);
      work.fill(address(bound.ranges[a]), stream);
      of.synchronize(stream);
    }
    return;
  }
  Copy copy = on_host(of, bound);
  fill(subject, copy.bound, content, threads);
  for (std::size_t a = 0; a < copy.memory.size(); ++a)
    check(of.driver(), of.driver().copy_in(address(bound.ranges[a]), copy.memory[a].data(), copy.memory[a].size(), stream),
          "copying a tensor to the device");
  of.synchronize(stream);
}

Report verify_from_device(const Question& question, int source_ordinal) {
  device::Gpu& of = gpu(source_ordinal);
  settle(of);
  const Copy copy = on_host(of, question.source->bound);
  Question local = question;
  local.source->bound = copy.bound;
  return verify(local);
}

Report verify_on_device(const Question& question, int ordinal, int source_ordinal) {
  device::Gpu& of = gpu(ordinal);
  settle(of);
  const auto blocks = blocks_of(question.content.requests, question.subject.geometry);
  if (question.content.poison && std::all_of(question.bound.ranges.begin(), question.bound.ranges.end(), whole_vectors)) {
    const device::OwnStream stream(of);
    bool right = true;
    Report report;
    for (std::size_t a = 0; a < question.bound.ranges.size() && right; ++a) {
      device::RegionWork work(of, image(question.bound, a, blocks, question.content), stream);
      right = work.check(address(question.bound.ranges[a]), 0, stream).wrong_bytes == 0;
      report.checked_bytes += static_cast<std::int64_t>(question.bound.ranges[a].bytes.size());
    }
    if (right) {
      for (const auto& b : blocks) report.blocks.push_back({b.block, b.first_token, b.tokens, b.generation, true});
      return report;
    }
  }
  const Copy copy = on_host(of, question.bound);
  Question local = question;
  local.bound = copy.bound;
  return source_ordinal >= 0 ? verify_from_device(local, source_ordinal) : verify(local);
}

}  // namespace kvcts::probe
