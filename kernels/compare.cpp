#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/generate.hpp"
#include "kernels/isa.hpp"

namespace kvcts::kernels {
namespace {

/// Small enough that a chunk which differs is still in L1 when its differences are counted.
constexpr std::size_t chunk_bytes = 8192;

void locate_differences(const std::uint8_t* a, const std::uint8_t* b, std::size_t n, std::int64_t offset, std::size_t limit,
                        std::vector<std::int64_t>& first) {
  for (std::size_t k = 0; k < n && first.size() < limit; ++k) {
    if (a[k] != b[k]) first.push_back(offset + static_cast<std::int64_t>(k));
  }
}

}  // namespace

Difference compare(std::span<const std::uint8_t> observed, std::span<const std::uint8_t> expected, std::size_t limit) {
  if (observed.size() != expected.size()) {
    throw layout::Error("can only compare equally long regions, found " + std::to_string(observed.size()) +
                        " observed and " + std::to_string(expected.size()) + " expected bytes");
  }
  Difference difference;
  for (std::size_t at = 0; at < observed.size(); at += chunk_bytes) {
    const std::size_t n = std::min(chunk_bytes, observed.size() - at);
    const std::uint8_t *a = observed.data() + at, *b = expected.data() + at;
    if (std::memcmp(a, b, n) == 0) continue;
    difference.wrong_bytes += static_cast<std::int64_t>(best_isa().count(a, b, n));
    locate_differences(a, b, n, static_cast<std::int64_t>(at), limit, difference.first);
  }
  return difference;
}

}  // namespace kvcts::kernels
