#include "kernels/image.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "kernels/check_in_place.hpp"
#include "kernels/parallel.hpp"
#include "kernels/poison.hpp"

namespace kvcts::kernels {
namespace {

void require_inside(const Image& image, std::size_t file_bytes) {
  if (image.base >= 0 && image.bytes >= 0 && image.base <= static_cast<std::int64_t>(file_bytes) - image.bytes) return;
  throw layout::Error("an allocation must lie in its memory file of " + std::to_string(file_bytes) + " bytes, found " +
                      std::to_string(image.bytes) + " bytes from " + std::to_string(image.base) + " on");
}

/// The differences of tags and of the poison around them, or nothing if they cannot be separated byte by byte.
std::optional<Difference> in_place(const Image& image, std::span<const std::uint8_t> file, std::size_t limit, int threads) {
  const auto allocation = file.subspan(static_cast<std::size_t>(image.base), static_cast<std::size_t>(image.bytes));
  Intervals covered;
  const auto found_tags = check_in_place(allocation, image.tags, limit, threads, &covered);
  if (!found_tags) return std::nullopt;
  if (!covered.settle()) return std::nullopt;
  auto holes = covered.holes(image.bytes);
  for (auto& hole : holes) hole.begin += image.base, hole.end += image.base;
  Differences all(limit);
  all.add(found_tags->result(), image.base);
  holes.insert(holes.begin(), {0, image.base});
  holes.push_back({image.base + image.bytes, static_cast<std::int64_t>(file.size())});
  // Splits long holes byte by byte, keeps the others whole.
  constexpr std::int64_t long_hole = 1 << 20;
  const auto shorter = std::stable_partition(holes.begin(), holes.end(),
                                             [](const Interval& hole) { return hole.end - hole.begin >= long_hole; });
  for (auto hole = holes.begin(); hole != shorter; ++hole) {
    const auto bytes =
        file.subspan(static_cast<std::size_t>(hole->begin), static_cast<std::size_t>(hole->end - hole->begin));
    all.add(check_poison(image.poison, hole->begin, bytes, limit, threads), hole->begin);
  }
  const std::span<const Interval> others(shorter, holes.end());
  constexpr std::size_t shares = 64;
  std::vector<Differences> found(threads == 1 ? 1 : shares, Differences(limit));
  parallel(threads, found.size(), [&](std::size_t k) {
    const std::size_t begin = k * others.size() / found.size(), end = (k + 1) * others.size() / found.size();
    found[k] = check_poison(image.poison, file, others.subspan(begin, end - begin), limit);
  });
  for (const Differences& part : found) all.add(part);
  return all.result();
}

}  // namespace

void write(const Image& image, std::span<std::uint8_t> file, int threads) {
  require_inside(image, file.size());
  fill_poison(image.poison, 0, file, threads);
  const auto allocation = file.subspan(static_cast<std::size_t>(image.base), static_cast<std::size_t>(image.bytes));
  for (const Tagged& tagged : image.tags) {
    generate(allocation, *tagged.plane, tagged.content, tagged.key, tagged.unblocked_generation, threads);
  }
}

Difference check(const Image& image, std::span<const std::uint8_t> file, std::size_t limit, int threads) {
  require_inside(image, file.size());
  if (const auto found = in_place(image, file, limit, threads)) return *found;
  std::vector<std::uint8_t> expected(file.size());
  write(image, expected, threads);
  return compare(file, expected, limit, threads);
}

}  // namespace kvcts::kernels
