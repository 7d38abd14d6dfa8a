#include "python/probe/content.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/poison.hpp"

namespace kvcts::probe {

std::vector<kernels::BlockContent> blocks_of(const std::vector<Request>& requests, const layout::Geometry& geometry) {
  std::vector<kernels::BlockContent> out;
  std::vector<bool> named(static_cast<std::size_t>(std::max<std::int64_t>(geometry.blocks, 0)));
  for (const Request& request : requests) {
    const std::int64_t room = static_cast<std::int64_t>(request.blocks.size()) * geometry.block_size;
    const std::int64_t tokens = request.tokens < 0 ? room : request.tokens;
    if (tokens > room)
      throw layout::Error(fmt::format("{} blocks of {} tokens hold {}, found a request of {} tokens", request.blocks.size(),
                                      geometry.block_size, room, tokens));
    for (std::size_t i = 0; i < request.blocks.size(); ++i) {
      const std::int64_t block = request.blocks[i];
      if (block < 0 || block >= geometry.blocks)
        throw layout::Error(fmt::format("expected blocks from 0 to {}, found block {}", geometry.blocks - 1, block));
      if (named[static_cast<std::size_t>(block)])
        throw layout::Error(fmt::format("block {} is named twice: every block has one owner", block));
      named[static_cast<std::size_t>(block)] = true;
      const std::int64_t first = static_cast<std::int64_t>(i) * geometry.block_size;
      if (first < tokens)
        out.push_back({block, request.generation, first, 0, std::min(geometry.block_size, tokens - first)});
    }
  }
  return out;
}

std::uint64_t poison_of(const Content& content, int allocation) {
  return kernels::poison_key(content.key.seed, static_cast<std::uint32_t>(*content.poison), 0,
                             static_cast<std::uint32_t>(allocation));
}

std::uint32_t unblocked_generation(const Content& content) {
  return content.requests.empty() ? 1 : content.requests.front().generation;
}

kernels::Image image_of(const layout::Cache& cache, int allocation, std::int64_t bytes,
                        const std::vector<kernels::BlockContent>& blocks, const Content& content) {
  kernels::Image image{poison_of(content, allocation), 0, bytes, {}};
  if (blocks.empty()) return image;
  for (const layout::Plane& plane : cache.planes)
    if (plane.allocation == allocation) image.tags.push_back({&plane, blocks, content.key, unblocked_generation(content)});
  return image;
}

namespace {

// Tags will cover every byte: poison below them would be a useless second pass over the memory.
bool fills_everything(const layout::Cache& cache, int allocation, const std::vector<kernels::BlockContent>& blocks,
                      const layout::Geometry& geometry) {
  std::int64_t tokens = 0;
  for (const kernels::BlockContent& b : blocks) tokens += b.tokens;
  if (tokens != geometry.blocks * geometry.block_size) return false;
  for (const layout::Plane& plane : cache.planes)
    if (plane.allocation == allocation && layout::bits(plane.dtype) < 8) return false;
  return layout::holes(cache, allocation).empty();
}

}  // namespace

void fill(const Subject& subject, const Bound& bound, const Content& content, int threads) {
  const auto blocks = blocks_of(content.requests, subject.geometry);
  for (std::size_t a = 0; a < bound.ranges.size(); ++a) {
    const auto bytes = bound.ranges[a].bytes;
    if (content.poison && !fills_everything(bound.cache, static_cast<int>(a), blocks, subject.geometry)) {
      kernels::write(image_of(bound.cache, static_cast<int>(a), static_cast<std::int64_t>(bytes.size()), blocks, content),
                     bytes, threads);
      continue;
    }
    for (const layout::Plane& plane : bound.cache.planes)
      if (plane.allocation == static_cast<int>(a) && !blocks.empty())
        kernels::generate(bytes, plane, blocks, content.key, unblocked_generation(content), threads);
  }
}

}  // namespace kvcts::probe
