// The content of one memory file in device memory: the device writes it and checks it in place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/gpu.hpp"
#include "device/memory.hpp"
#include "kernels/cuda/plan.hpp"
#include "kernels/generate.hpp"
#include "layout/layout.hpp"

namespace kvcts::device {

/// What a memory file holds: poison everywhere, and the tags of an allocation's planes at `base`.
struct Image {
  std::uint64_t bytes{0}, base{0};
  std::uint64_t poison{0};  ///< key of the memory file
  std::vector<layout::Plane> planes;
  std::vector<kernels::BlockContent> content;
  kernels::TagKey key;
  std::uint32_t unblocked_generation{0};
};

/// A planned image: its tables are already in device memory, so filling and checking only launch kernels.
class RegionWork {
 public:
  /// Throws layout::Error for planes that no kernel can write, and device::Error.
  RegionWork(Gpu& gpu, const Image& image, Stream stream);

  /// Writes poison, then tags. `memory` is 16-byte aligned and has room up to the next 16-byte boundary past image.bytes.
  void fill(Address memory, Stream stream);
  /// Compares every byte of the memory with the image, like kernels::compare(): the number of wrong bytes, and the
  /// first `limit` of them. Waits for the result.
  kernels::Difference check(Address memory, std::size_t limit, Stream stream);
  /// Launches a check without waiting for its result, for benchmarks.
  void launch_check(Address memory, Stream stream);
  /// False when planes share bytes, or have 4-bit codes that share a byte: a check then generates the image next to
  /// the memory and compares.
  bool in_place() const { return in_place_; }

 private:
  struct Rows {
    cuda::RowsPlan plan;
    DeviceBuffer tables;
  };
  struct Poison {
    cuda::PoisonPlan plan;
    DeviceBuffer tables;
  };
  void launch_check(Address memory, const cuda::Probe& probe, Stream stream);
  cuda::Findings findings(Stream stream);

  Gpu& gpu_;
  Image image_;
  bool in_place_{true};
  std::vector<Rows> rows_;
  std::unique_ptr<Poison> all_, free_;
  DeviceBuffer found_, list_;
  std::unique_ptr<DeviceBuffer> beside_;
};

}  // namespace kvcts::device
