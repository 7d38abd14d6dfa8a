// Writes tags into the planes of one rank's cache, and checks them in place. Knows no connector.
//
// `threads` everywhere: 1 only the caller's, 0 one per processor. It does not affect results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tag.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels {

/// The content of one block of the pool: slots [first_slot, first_slot + tokens) carry tokens first_token, first_token + 1,
/// ... of a generation. Other slots are not written (they keep their poison). Blocks and slots that a plane does not hold
/// are skipped: another plane of the cache may hold them.
struct BlockContent {
  std::int64_t block{0};
  std::uint32_t generation{0};
  std::int64_t first_token{0};
  std::int64_t first_slot{0};
  std::int64_t tokens{0};
  bool operator==(const BlockContent&) const = default;
};

/// Writes the tags of `plane` for these blocks into the allocation's bytes. An axis without modes has its origin's
/// coordinate; a plane with neither block nor slot modes is written once, with `unblocked_generation`, token 0. Preserves
/// all bits that are not codes of these blocks (including the other nibble of a byte). Where coordinates share bits, one
/// wins. Throws layout::Error, before writing, if the plane leaves `allocation`, a mode is not sane (extent, step >= 1), a
/// coordinate is outside tag/1's ranges, or a high-nibble-first plane does not lie on whole nibbles.
void generate(std::span<std::uint8_t> allocation, const layout::Plane& plane, std::span<const BlockContent> content,
              const TagKey& key, std::uint32_t unblocked_generation, int threads = 1);

/// First differing bytes and their count, between found and expected.
struct Difference {
  std::int64_t wrong_bytes{0};
  std::vector<std::int64_t> first;  ///< byte offsets of the first `limit` differences, ascending
  bool operator==(const Difference&) const = default;
};

/// Compares two images. Throws layout::Error when sizes differ.
Difference compare(std::span<const std::uint8_t> observed, std::span<const std::uint8_t> expected, std::size_t limit = 16,
                   int threads = 1);

/// Checks in place that the allocation holds what generate() would write: equivalent to generating into a copy and
/// comparing, without making an image. `wrong_bytes` are bytes with a wrong code in them; other bits are not judged. Where
/// codes of one byte cannot be checked together (rows of an odd number of nibbles, coordinates that share bits, a slot named
/// twice), it does use a copy. Throws as generate() does.
Difference check(std::span<const std::uint8_t> allocation, const layout::Plane& plane, std::span<const BlockContent> content,
                 const TagKey& key, std::uint32_t unblocked_generation, std::size_t limit = 16, int threads = 1);

/// XXH3-64 of the bytes.
std::uint64_t digest(std::span<const std::uint8_t> bytes);

}  // namespace kvcts::kernels
