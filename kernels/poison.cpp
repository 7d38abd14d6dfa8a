#include "kernels/poison.hpp"

#include <algorithm>
#include <string>

#include "kernels/isa.hpp"
#include "kernels/tag_math.hpp"
#include "layout/error.hpp"

namespace kvcts::kernels {

std::uint64_t poison_key(std::uint64_t seed, std::uint32_t side, std::uint32_t rank, std::uint32_t allocation) {
  if (rank >= 1u << 16 || allocation >= 1u << 16) {
    throw layout::Error("poison has room for ranks and allocations below 65536, found rank " + std::to_string(rank) +
                        ", allocation " + std::to_string(allocation));
  }
  const std::uint64_t file = (std::uint64_t{side} << 32) | (std::uint64_t{rank} << 16) | allocation;
  return mix(mix(seed ^ 0x706f69736f6eu) + file);
}

void fill_poison(std::uint64_t key, std::int64_t offset, std::span<std::uint8_t> out) {
  if (offset < 0) throw layout::Error("poison starts at an offset >= 0 of a memory file, found " + std::to_string(offset));
  auto at = static_cast<std::uint64_t>(offset);
  while (!out.empty() && at % 4 != 0) {
    out.front() = poison_byte(key, static_cast<std::int64_t>(at));
    out = out.subspan(1);
    ++at;
  }
  constexpr std::uint64_t span_of_key = std::uint64_t{1} << 34;  // 2^32 words
  while (!out.empty()) {
    const std::uint64_t i = at / 4;
    const std::size_t bytes = std::min<std::uint64_t>(out.size(), span_of_key - at % span_of_key);
    const LaneRow row{poison_row(key, i), out.data(), poison_or, 0};
    best_isa().rows(LaneKind::plain)({&row, 1}, {static_cast<std::uint32_t>(i), bytes, poison_and});
    out = out.subspan(bytes);
    at += bytes;
  }
}

std::uint8_t poison_byte(std::uint64_t key, std::int64_t offset) {
  const auto at = static_cast<std::uint64_t>(offset);
  return static_cast<std::uint8_t>(poison_word(key, at / 4) >> (8 * (at % 4)));
}

}  // namespace kvcts::kernels
