#include "kernels/generate.hpp"

#include "kernels/parallel.hpp"
#include "kernels/sinks.hpp"
#include "kernels/walk.hpp"

namespace kvcts::kernels {

void generate(std::span<std::uint8_t> allocation, const layout::Plane& plane, std::span<const BlockContent> content,
              const TagKey& key, std::uint32_t unblocked_generation, int threads) {
  const Map map(allocation.size(), plane, content, key);
  const bool large = past_caches(allocation.size());
  if (threads == 0) threads = processors();
  if (!map.blocked || threads == 1 || !map.shape.one_to_one || map.shape.way == Way::bitwise) {
    Write sink(allocation, large);
    Walk walk(map, sink);
    if (map.blocked) {
      walk.blocks(map.layer_kvs, content);
    } else {
      walk.unblocked(unblocked_generation);
    }
    return;
  }
  const Map* const maps[]{&map};
  const Cuts cuts(maps, content, threads);
  const auto work = parts(map, cuts);
  parallel(threads, work.size(), [&](std::size_t k) {
    Write sink(allocation, large);
    Walk(map, sink).blocks(work[k].layer_kvs, work[k].content);
  });
}

}  // namespace kvcts::kernels
