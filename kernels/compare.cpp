#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "kernels/generate.hpp"
#include "kernels/parallel.hpp"
#include "kernels/sinks.hpp"

namespace kvcts::kernels {
namespace {

/// Small enough that a differing chunk is still in L1 when its differences are counted.
constexpr std::size_t chunk_bytes = 8192;

}  // namespace

Difference compare(std::span<const std::uint8_t> observed, std::span<const std::uint8_t> expected, std::size_t limit,
                   int threads) {
  if (observed.size() != expected.size()) {
    throw layout::Error("can only compare equally long regions, found " + std::to_string(observed.size()) +
                        " observed and " + std::to_string(expected.size()) + " expected bytes");
  }
  Differences all(limit);
  std::mutex guard;
  parallel_ranges(threads, observed.size(), chunk_bytes, [&](std::size_t begin, std::size_t end) {
    Differences found(limit);
    for (std::size_t at = begin; at < end; at += chunk_bytes) {
      const std::size_t n = std::min(chunk_bytes, end - at);
      const std::uint8_t *a = observed.data() + at, *b = expected.data() + at;
      if (std::memcmp(a, b, n) != 0) found.count(a, b, n, static_cast<std::int64_t>(at));
    }
    const std::lock_guard lock(guard);
    all.add(found);
  });
  return all.result();
}

}  // namespace kvcts::kernels
