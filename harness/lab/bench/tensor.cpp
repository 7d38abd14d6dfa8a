#include "lab/bench/tensor.hpp"

#include <fstream>
#include <stdexcept>
#include <vector>

#include "kernels/generate.hpp"

namespace kvcts::bench {

void write_tensor(const std::string& path, std::size_t bytes) {
  using layout::Axis;
  constexpr std::int64_t row = 128 * 2, slot = 8 * row, block = 16 * slot;
  const std::int64_t blocks = static_cast<std::int64_t>(bytes) / block;
  layout::Plane plane;
  plane.modes = {
      {Axis::block, blocks, block * 8}, {Axis::slot, 16, slot * 8}, {Axis::head, 8, row * 8}, {Axis::channel, 128, 16}};
  std::vector<kernels::BlockContent> content;
  for (std::int64_t b = 0; b < blocks; ++b) content.push_back({b, 1, b * 16, 0, 16});
  std::vector<std::uint8_t> memory(static_cast<std::size_t>(blocks * block));
  kernels::generate(memory, plane, content, {}, 0, 0);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(memory.data()), static_cast<std::streamsize>(memory.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace kvcts::bench
