#include "diagnose/owners.hpp"

#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

Owners::Owners(const Group& group, Side side, bool transferred_only) : group_(group) {
  for (const auto& b : oracle::content(group, side, transferred_only)) blocks_[b.block].push_back(b);
  for (const Request& r : group.requests) {
    if (!r.transfer) continue;
    for (const std::int64_t block : r.consumer_blocks) moved_to_[block].push_back(&r);
  }
}

bool Owners::own(Provenance& at) const {
  const auto found = blocks_.find(at.block);
  if (found == blocks_.end()) return false;
  for (const auto& b : found->second) {
    if (at.slot < b.first_slot || at.slot >= b.first_slot + b.tokens) continue;
    at.generation = b.generation;
    at.token = b.first_token + at.slot - b.first_slot;
    return true;
  }
  return false;
}

Provenance Owners::source_of(const Provenance& at) const {
  Provenance element_run = at;
  const auto moved = moved_to_.find(at.block);
  if (moved == moved_to_.end() || !own(element_run)) return nothing();
  const std::int64_t size = group_.producer.ranks.front().geometry.block_size;
  for (const Request* r : moved->second) {
    if (r->generation != element_run.generation ||
        static_cast<std::size_t>(element_run.token / size) >= r->producer_blocks.size())
      continue;
    Provenance from = element_run;
    from.block = r->producer_blocks[static_cast<std::size_t>(element_run.token / size)],
    from.slot = element_run.token % size;
    for (std::size_t rank = 0; rank < group_.producer.ranks.size(); ++rank) {
      const auto& g = group_.producer.ranks[rank].geometry;
      if (at.head < g.first_head || at.head >= g.first_head + g.heads) continue;
      from.rank = static_cast<int>(rank);
      return from;
    }
  }
  return nothing();
}

Provenance Owners::nothing() {
  Provenance out;
  out.kind = Provenance::Kind::nothing, out.text = "nothing: an unowned slot";
  return out;
}

}  // namespace kvcts::diagnose
