// Poison: what every byte holds that should not be touched. CONTRACT (version 1):
//
//   8-byte words, little endian, at byte offset o = 8*i of a *memory file* (guards included, so guards, padding and free blocks
//   differ by position):  w = mix(region_key + i * 0x9e3779b97f4a7c15);  byte j of the word = (w >> 8j & 0xEE) | 0x02
//
// No byte is 0, 0x80 or 0xff; bits 0 and 4 are clear, so no tag of any dtype and no NaN of any float dtype can appear.
#pragma once

#include <cstdint>
#include <span>

namespace kvcts::kernels {

/// Key of one memory file: mix(mix(seed ^ 0x706f69736f6e) + side << 32 | rank << 16 | allocation). side 0 producer, 1 consumer, 2 other.
std::uint64_t poison_key(std::uint64_t seed, std::uint32_t side, std::uint32_t rank, std::uint32_t allocation);
/// Fills `out`, which starts at byte `offset` of the memory file (any offset).
void fill_poison(std::uint64_t key, std::int64_t offset, std::span<std::uint8_t> out);
/// The poison byte at one offset.
std::uint8_t poison_byte(std::uint64_t key, std::int64_t offset);

}  // namespace kvcts::kernels
