// A whole memory file: poison, overlaid with the tags of an allocation's planes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/generate.hpp"
#include "kernels/tag.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels {

/// The arguments of generate(). Refers to the plane and the content.
struct Tagged {
  const layout::Plane* plane{nullptr};
  std::span<const BlockContent> content;
  TagKey key;
  std::uint32_t unblocked_generation{0};
};

struct Image {
  std::uint64_t poison{0};         ///< key of the file (poison_key)
  std::int64_t base{0}, bytes{0};  ///< the allocation's range in the file; the rest is guard
  std::vector<Tagged> tags;
};

/// Writes the image over the whole file. Throws layout::Error as generate() does, and when the allocation leaves the file.
void write(const Image& image, std::span<std::uint8_t> file, int threads = 1);

/// Compares every byte of the file with the image, in place where possible (see check()). Offsets are file offsets.
Difference check(const Image& image, std::span<const std::uint8_t> file, std::size_t limit = 16, int threads = 1);

}  // namespace kvcts::kernels
