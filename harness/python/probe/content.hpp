// What a pool should hold: tags in the blocks of its requests, poison everywhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/generate.hpp"
#include "kernels/image.hpp"
#include "python/probe/subject.hpp"

namespace kvcts::probe {

/// Tokens 0 .. tokens-1 of a generation, in these blocks: blocks[i] has tokens [i * block_size, (i + 1) * block_size).
struct Request {
  std::vector<std::int64_t> blocks;
  std::int64_t tokens{-1};  ///< -1: as many as the blocks hold
  std::uint32_t generation{1};
  bool operator==(const Request&) const = default;
};

enum class Side : std::uint32_t { producer = 0, consumer = 1 };  ///< whose poison: the two sides' differ

struct Content {
  std::vector<Request> requests;
  kernels::TagKey key;
  std::optional<Side> poison{Side::consumer};  ///< nullopt: bytes outside the requests are neither written nor checked
};

/// Throws layout::Error for a block that the pool does not have, a block named twice, or more tokens than the blocks
/// hold.
std::vector<kernels::BlockContent> blocks_of(const std::vector<Request>& requests, const layout::Geometry& geometry);

std::uint64_t poison_of(const Content& content, int allocation);
/// Values that belong to a cache rather than to a block (a global scale) carry the first request's generation.
std::uint32_t unblocked_generation(const Content& content);

/// The required content of one allocation. Refers to its arguments.
kernels::Image image_of(const layout::Cache& cache, int allocation, std::int64_t bytes,
                        const std::vector<kernels::BlockContent>& blocks, const Content& content);

/// Writes the content. Throws layout::Error.
void fill(const Subject& subject, const Bound& bound, const Content& content, int threads);

}  // namespace kvcts::probe
