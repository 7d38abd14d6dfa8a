// For tests: launches on the CPU twin over plain host memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/twin.hpp"

namespace kvcts::cuda::testing {

/// Bytes at a multiple of 16, readable up to the next multiple after their end, like device memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes, u8 value = 0) : words_(bytes / 16 + 1), bytes_(bytes) {
    std::memset(data(), value, bytes);
  }
  explicit Memory(std::span<const u8> from) : Memory(from.size()) { std::copy(from.begin(), from.end(), data()); }
  u8* data() { return reinterpret_cast<u8*>(words_.data()); }
  std::span<u8> bytes() { return {data(), bytes_}; }

 private:
  std::vector<Vector> words_;
  std::size_t bytes_;
};

/// Packed strides for modes written outermost first.
inline layout::Plane packed(layout::Dtype dtype, std::vector<layout::Mode> modes, i64 offset = 0) {
  layout::Plane plane;
  plane.dtype = dtype;
  plane.offset = offset;
  i64 stride = layout::bits(dtype);
  for (auto mode = modes.rbegin(); mode != modes.rend(); ++mode) {
    mode->stride = stride;
    stride *= mode->extent;
  }
  plane.modes = std::move(modes);
  return plane;
}

template <class Args>
void launch(std::string_view kernel, const Args& args, u64 blocks) {
  const Twin* twin = find_twin(kernel);
  ASSERT_NE(twin, nullptr) << kernel;
  ASSERT_EQ(twin->args_bytes, sizeof(Args)) << kernel;
  // Fewer blocks than tiles, so blocks stride.
  twin->run(&args, static_cast<u32>(std::clamp<u64>(blocks / 2, 1, 7)));
}

/// Findings and their list, laid out as in device memory.
struct Watch {
  explicit Watch(u64 from = 0, u64 to = ~u64{0}, std::size_t capacity = 1 << 16) : list(capacity) {
    probe = {&found, list.data(), from, to, capacity};
  }
  std::vector<u64> listed() {
    std::vector<u64> out(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(std::min<u64>(found.listed, list.size())));
    std::sort(out.begin(), out.end());
    return out;
  }
  Findings found;
  std::vector<u64> list;
  Probe probe;
};

}  // namespace kvcts::cuda::testing
