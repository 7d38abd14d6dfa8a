#include "diagnose/crop.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

namespace {

/// Of `begin` .. `end` - 1: wrong ones from both ends, `most` of them, and the first right one beside them.
std::set<std::int64_t> sample(const std::set<std::int64_t>& wrong, std::int64_t begin, std::int64_t end, std::size_t most) {
  std::set<std::int64_t> out;
  const std::vector<std::int64_t> all(wrong.begin(), wrong.end());
  for (std::size_t i = 0; i < all.size() && out.size() < most; ++i) {
    out.insert(all[i]);
    if (out.size() < most) out.insert(all[all.size() - 1 - i]);
  }
  for (const std::int64_t value : all) {
    const auto right = [&](std::int64_t at) { return at >= begin && at < end && !wrong.contains(at); };
    if (!right(value - 1) && !right(value + 1)) continue;
    out.insert(right(value - 1) ? value - 1 : value + 1);
    break;
  }
  return out;
}

}  // namespace

bool Crop::keeps(const Provenance& provenance) const {
  if (whole) return true;
  const auto found = tokens.find(provenance.generation);
  return layers.contains(provenance.layer) && found != tokens.end() && found->second.contains(provenance.token);
}

Crop crop_of(const ResolvedCase& resolved, const Crop& wrong) {
  constexpr std::int64_t small = 512 << 10, kept = 128 << 10;
  constexpr std::size_t most_layers = 3;
  const std::int64_t bytes = oracle::content_bytes(resolved).least;
  if (bytes <= small || wrong.layers.empty()) return {};
  Crop out;
  out.whole = false;
  const Group& group = resolved.groups.at(0);
  std::int64_t first = INT64_MAX, last = 0, tokens = 0;
  for (const RankCache& rank : group.producer.ranks)
    first = std::min<std::int64_t>(first, rank.geometry.first_layer),
    last = std::max<std::int64_t>(last, rank.geometry.first_layer + rank.geometry.layers);
  for (const Request& r : group.requests) tokens += r.transfer ? r.tokens : 0;
  out.layers = sample(wrong.layers, first, last, most_layers);
  const std::int64_t size = std::lcm(group.producer.ranks.front().geometry.block_size,
                                     group.consumer.ranks.front().geometry.block_size),
                     of_token = std::max<std::int64_t>(1, bytes / std::max<std::int64_t>(1, (last - first) * tokens) *
                                                              static_cast<std::int64_t>(out.layers.size()));
  const auto most = static_cast<std::size_t>(std::clamp<std::int64_t>(kept / (of_token * size), 3, 64));
  const auto of_block = std::max<std::size_t>(8, static_cast<std::size_t>(kept / of_token) / most);  // tokens
  for (const Request& r : group.requests) {
    const auto found = wrong.tokens.find(r.generation);
    if (found == wrong.tokens.end()) continue;
    std::map<std::int64_t, std::set<std::int64_t>> by_block;
    std::set<std::int64_t> blocks;
    for (const std::int64_t token : found->second) by_block[token / size].insert(token), blocks.insert(token / size);
    for (const std::int64_t block : sample(blocks, 0, (r.tokens + size - 1) / size, most)) {
      const std::int64_t begin = block * size, end = std::min(r.tokens, begin + size);
      auto& of_this = by_block[block];
      if (of_this.empty())
        for (std::int64_t t = begin; t < end; ++t) of_this.insert(t);
      out.tokens[r.generation].merge(sample(of_this, begin, end, of_block));
    }
  }
  return out;
}

}  // namespace kvcts::diagnose
