// Poison: the content of every byte that must not be touched. CONTRACT (version 1); mix() and word() are those of tag.hpp:
//
//   4-byte words, little endian; the word at byte offset o = 4*i (i: u64) of a *memory file* (guards included, so guards,
//   padding and free blocks differ by position) is
//     w = (word(mix(key + (i >> 32)), i mod 2^32) & 0xeeeeeeee) | 0x22222222
//   key = mix( mix(seed ^ 0x706f69736f6e) + ((side << 32) | (rank << 16) | allocation) )      rank, allocation < 2^16
//
// Bits 0 and 4 of every byte are clear, bits 1 and 5 set: no byte and no nibble is 0, no byte is 0x80 or 0xff, and no tag of
// any dtype (bit 0 set in every code) and no NaN or Inf of any float dtype can appear, at any byte shift.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/generate.hpp"

namespace kvcts::kernels {

/// Key of one memory file. side: 0 producer, 1 consumer, 2 other. Throws layout::Error when rank or allocation >= 2^16.
std::uint64_t poison_key(std::uint64_t seed, std::uint32_t side, std::uint32_t rank, std::uint32_t allocation);
/// Fills `out`, which starts at byte `offset` of the memory file (any offset >= 0, else layout::Error). threads: see
/// generate.hpp.
void fill_poison(std::uint64_t key, std::int64_t offset, std::span<std::uint8_t> out, int threads = 1);
/// Checks in place that these bytes are poison. Places are counted from the first byte of `bytes`.
Difference check_poison(std::uint64_t key, std::int64_t offset, std::span<const std::uint8_t> bytes, std::size_t limit = 16,
                        int threads = 1);
/// The poison byte at one offset.
std::uint8_t poison_byte(std::uint64_t key, std::int64_t offset);

}  // namespace kvcts::kernels
