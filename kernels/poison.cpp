#include "kernels/poison.hpp"

#include <algorithm>
#include <mutex>
#include <string>

#include "kernels/check_in_place.hpp"
#include "kernels/isa.hpp"
#include "kernels/parallel.hpp"
#include "kernels/sinks.hpp"
#include "kernels/tag_math.hpp"
#include "kernels/tiler.hpp"
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

namespace {

void require_offset(std::int64_t offset) {
  if (offset < 0) throw layout::Error("poison starts at an offset >= 0 of a memory file, found " + std::to_string(offset));
}

/// Writes n bytes of poison starting at byte `at` of the file.
void make(std::uint64_t key, std::uint64_t at, std::uint8_t* out, std::size_t n) {
  for (; n > 0 && at % 4 != 0; ++at, --n) *out++ = poison_byte(key, static_cast<std::int64_t>(at));
  constexpr std::uint64_t span_of_key = std::uint64_t{1} << 34;  // 2^32 words
  while (n > 0) {
    const std::uint64_t i = at / 4;
    const std::size_t bytes = std::min<std::uint64_t>(n, span_of_key - at % span_of_key);
    const std::uint64_t row = poison_row(key, i);
    const auto low = static_cast<std::uint32_t>(row), high = static_cast<std::uint32_t>(row >> 32);
    best_isa().write_rows(LaneKind::plain)(
        {&low, &high, &poison_or, 1}, {static_cast<std::uint32_t>(i), bytes, static_cast<std::ptrdiff_t>(bytes), poison_and},
        out);
    out += bytes;
    at += bytes;
    n -= bytes;
  }
}

/// Hands the bytes [begin, end) to a sink, tile by tile.
template <typename Sink>
void tiles(std::uint64_t key, std::int64_t offset, std::size_t begin, std::size_t end, Sink& sink) {
  alignas(64) std::uint8_t tile[tile_bytes];
  for (std::size_t at = begin; at < end;) {
    const std::size_t n = std::min(end - at, tile_bytes - at % tile_bytes);
    const auto place = static_cast<std::int64_t>(at);
    std::uint8_t* const direct = sink.direct(place);
    const Pieces piece{place, n};
    if (direct == nullptr) sink.expect(piece);
    make(key, static_cast<std::uint64_t>(offset) + at, direct != nullptr ? direct : tile, n);
    if (direct == nullptr) sink.take(piece, tile);
    at += n;
  }
  sink.finish();
}

constexpr std::size_t grain = std::size_t{1} << 16;  // threads' shares are multiples of it

}  // namespace

void fill_poison(std::uint64_t key, std::int64_t offset, std::span<std::uint8_t> out, int threads) {
  require_offset(offset);
  const bool large = past_caches(out.size());
  parallel_ranges(threads, out.size(), grain, [&](std::size_t begin, std::size_t end) {
    Write sink(out, large);
    tiles(key, offset, begin, end, sink);
  });
}

Difference check_poison(std::uint64_t key, std::int64_t offset, std::span<const std::uint8_t> bytes, std::size_t limit,
                        int threads) {
  require_offset(offset);
  Differences all(limit);
  std::mutex guard;
  parallel_ranges(threads, bytes.size(), grain, [&](std::size_t begin, std::size_t end) {
    Check sink(bytes, limit);
    tiles(key, offset, begin, end, sink);
    const std::lock_guard lock(guard);
    all.add(sink.differences());
  });
  return all.result();
}

Differences check_poison(std::uint64_t key, std::span<const std::uint8_t> file, std::span<const Interval> places,
                         std::size_t limit) {
  Check sink(file, limit);
  for (const Interval& place : places) {
    tiles(key, 0, static_cast<std::size_t>(place.begin), static_cast<std::size_t>(place.end), sink);
  }
  return sink.differences();
}

std::uint8_t poison_byte(std::uint64_t key, std::int64_t offset) {
  const auto at = static_cast<std::uint64_t>(offset);
  return static_cast<std::uint8_t>(poison_word(key, at / 4) >> (8 * (at % 4)));
}

}  // namespace kvcts::kernels
