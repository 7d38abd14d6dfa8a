#include <optional>

#include "kernels/check_in_place.hpp"
#include "kernels/generate.hpp"
#include "kernels/parallel.hpp"
#include "kernels/walk.hpp"

namespace kvcts::kernels {

std::optional<Differences> check_in_place(std::span<const std::uint8_t> allocation, const Tagged& tagged, std::size_t limit,
                                          int threads, Intervals* covered) {
  const Map map(allocation.size(), *tagged.plane, tagged.content, tagged.key);
  if (!map.shape.one_to_one || map.shape.way == Way::bitwise || any_twice(tagged.content)) return std::nullopt;
  if (threads == 0) threads = processors();
  if (!map.blocked || threads == 1) {
    Check sink(allocation, limit, covered);
    Walk walk(map, sink);
    const bool all = map.blocked ? walk.blocks(map.layer_kvs, tagged.content) : walk.unblocked(tagged.unblocked_generation);
    return all ? std::optional(sink.differences()) : std::nullopt;
  }
  const Parts parts(map, tagged.content, threads);
  std::vector<std::optional<Differences>> found(parts.all().size());
  std::vector<Intervals> seen(covered != nullptr ? found.size() : 0);
  parallel(threads, found.size(), [&](std::size_t k) {
    Check sink(allocation, limit, covered != nullptr ? &seen[k] : nullptr);
    Walk walk(map, sink);
    if (walk.blocks(parts.all()[k].layer_kvs, parts.all()[k].content)) found[k] = sink.differences();
  });
  Differences sum(limit);
  for (std::size_t k = 0; k < found.size(); ++k) {
    if (!found[k]) return std::nullopt;
    sum.add(*found[k]);
    if (covered != nullptr) covered->add(seen[k]);
  }
  return sum;
}

Difference check(std::span<const std::uint8_t> allocation, const layout::Plane& plane, std::span<const BlockContent> content,
                 const TagKey& key, std::uint32_t unblocked_generation, std::size_t limit, int threads) {
  const Tagged tagged{&plane, content, key, unblocked_generation};
  if (const auto found = check_in_place(allocation, tagged, limit, threads, nullptr)) return found->result();
  std::vector<std::uint8_t> expected(allocation.begin(), allocation.end());
  generate(expected, plane, content, key, unblocked_generation, threads);
  return compare(allocation, expected, limit, threads);
}

}  // namespace kvcts::kernels
