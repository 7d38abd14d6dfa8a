#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/check_in_place.hpp"
#include "kernels/generate.hpp"
#include "kernels/parallel.hpp"
#include "kernels/walk.hpp"

namespace kvcts::kernels {

namespace {

/// What one thread finds in its share. Interleaved planes are checked slice by slice while each slice is in the second-level
/// cache.
class Share {
 public:
  Share(std::span<const std::uint8_t> allocation, std::size_t limit) : allocation_(allocation), sink_(allocation, limit) {}

  void blocks(std::span<const Map* const> maps, std::span<const BlockContent> content) {
    std::int64_t block_bytes = 1;
    std::vector<std::unique_ptr<Walk<Check>>> walks;
    for (const Map* map : maps) {
      block_bytes += map->block_bytes;
      walks.push_back(std::make_unique<Walk<Check>>(*map, sink_));
    }
    constexpr std::int64_t slice_bytes = 512 << 10;
    const bool slices = maps.size() > 1 || maps.front()->inside_block > 1;
    const std::size_t slice =
        slices ? static_cast<std::size_t>(std::max<std::int64_t>(1, slice_bytes / block_bytes)) : content.size();
    for (std::size_t b = 0; b < content.size(); b += slice) {
      if (slices) fetch(maps, content.subspan(b, std::min(slice, content.size() - b)));
      for (std::size_t m = 0; m < maps.size(); ++m) {
        all_ = walks[m]->blocks(maps[m]->layer_kvs, content.subspan(b, std::min(slice, content.size() - b))) && all_;
      }
    }
  }
  void part(const Map& map, const Part& part) { all_ = Walk(map, sink_).blocks(part.layer_kvs, part.content) && all_; }
  void unblocked(const Map& map, std::uint32_t generation) { all_ = Walk(map, sink_).unblocked(generation) && all_; }

  /// Every row could be checked.
  bool all() const { return all_; }
  const Differences& differences() const { return sink_.differences(); }

 private:
  /// Reads a byte of every line of these blocks in order, the fastest way through memory; their rows then come from the
  /// cache. Not if a block's lines are spread over the allocation.
  void fetch(std::span<const Map* const> maps, std::span<const BlockContent> content) const {
    Interval span = maps.front()->block_span;
    for (const Map* map : maps) {
      if (!map->blocks.as(maps.front()->blocks)) return;
      span = {std::min(span.begin, map->block_span.begin), std::max(span.end, map->block_span.end)};
    }
    if (span.end - span.begin > maps.front()->blocks.pitch() / 8) return;
    for (const BlockContent& block : content) {
      maps.front()->blocks.each(block.block, [&](std::int64_t bit) {
        const volatile std::uint8_t* const bytes = allocation_.data();
        for (std::int64_t at = span.begin; at < span.end; at += 64) static_cast<void>(bytes[at + bit / 8]);
      });
    }
  }

  std::span<const std::uint8_t> allocation_;
  Check sink_;
  bool all_{true};
};

/// Adds the bytes that the planes' codes of these blocks occupy. Equally filled blocks have them at the same places, so the
/// first one's are shifted to the others.
void cover(std::span<const Map* const> maps, std::span<const BlockContent> content, Intervals& covered) {
  const BlockPlaces& places = maps.front()->blocks;
  const bool alike = std::all_of(maps.begin(), maps.end(), [&](const Map* map) { return map->blocks.as(places); });
  const auto walk = [&](std::span<const BlockContent> blocks, Intervals& to) {
    Cover sink(to);
    for (const Map* map : maps) Walk(*map, sink).blocks(map->layer_kvs, blocks);
  };
  if (!alike) return walk(content, covered);
  std::map<std::pair<std::int64_t, std::int64_t>, Intervals> known;  // by first slot and tokens; relative to the block
  for (const BlockContent& block : content) {
    places.each(block.block, [&](std::int64_t bit) {
      const auto [found, is_new] = known.try_emplace({block.first_slot, block.tokens});
      if (is_new) {
        Intervals of_this;
        walk({&block, 1}, of_this);
        of_this.settle();
        found->second.add(of_this, -bit / 8);
      }
      covered.add(found->second, bit / 8);
    });
  }
}

}  // namespace

std::optional<Differences> check_in_place(std::span<const std::uint8_t> allocation, std::span<const Tagged> tagged,
                                          std::size_t limit, int threads, Intervals* covered) {
  if (threads == 0) threads = processors();
  std::vector<std::unique_ptr<Map>> maps;
  for (const Tagged& t : tagged) {
    maps.push_back(std::make_unique<Map>(allocation.size(), *t.plane, t.content, t.key));
    if (!maps.back()->shape.one_to_one || maps.back()->shape.way == Way::bitwise) return std::nullopt;
  }
  Differences sum(limit);
  const auto take = [&](const Share& share) {
    if (!share.all()) return false;
    sum.add(share.differences());
    return true;
  };
  // Group planes with the same content.
  for (std::size_t m = 0; m < maps.size();) {
    if (!maps[m]->blocked) {
      Share share(allocation, limit);
      share.unblocked(*maps[m], tagged[m].unblocked_generation);
      if (!take(share)) return std::nullopt;
      if (covered != nullptr) {
        Cover sink(*covered);
        Walk(*maps[m], sink).unblocked(0);
      }
      ++m;
      continue;
    }
    const auto content = tagged[m].content;
    std::vector<const Map*> together;
    for (; m < maps.size() && maps[m]->blocked && tagged[m].content.data() == content.data() &&
           tagged[m].content.size() == content.size();
         ++m) {
      together.push_back(maps[m].get());
    }
    if (any_twice(content)) return std::nullopt;
    if (covered != nullptr) cover(together, content, *covered);
    if (threads == 1) {
      Share share(allocation, limit);
      share.blocks(together, content);
      if (!take(share)) return std::nullopt;
      continue;
    }
    const Cuts cuts(together, content, threads);
    std::vector<std::pair<const Map*, Part>> work;
    if (together.size() == 1 || cuts.all().size() < static_cast<std::size_t>(threads)) {
      for (const Map* map : together) {
        for (const Part& part : parts(*map, cuts)) work.emplace_back(map, part);
      }
    }
    std::vector<std::unique_ptr<Share>> shares(work.empty() ? cuts.all().size() : work.size());
    for (auto& share : shares) share = std::make_unique<Share>(allocation, limit);
    parallel(threads, shares.size(), [&](std::size_t k) {
      if (work.empty()) {
        shares[k]->blocks(together, cuts.all()[k]);
      } else {
        shares[k]->part(*work[k].first, work[k].second);
      }
    });
    for (const auto& share : shares) {
      if (!take(*share)) return std::nullopt;
    }
  }
  return sum;
}

Difference check(std::span<const std::uint8_t> allocation, const layout::Plane& plane, std::span<const BlockContent> content,
                 const TagKey& key, std::uint32_t unblocked_generation, std::size_t limit, int threads) {
  const Tagged tagged{&plane, content, key, unblocked_generation};
  if (const auto found = check_in_place(allocation, {&tagged, 1}, limit, threads, nullptr)) return found->result();
  std::vector<std::uint8_t> expected(allocation.begin(), allocation.end());
  generate(expected, plane, content, key, unblocked_generation, threads);
  return compare(allocation, expected, limit, threads);
}

}  // namespace kvcts::kernels
