// Right steps with another memory or another request.
#include <algorithm>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

// Another request instead of one: a continuation of the first (or a prefix of it) holds the same tokens, more or fewer of
// them.
FaultClass longer_or_shorter(const ScenarioRequest& was, const ScenarioRequest& now, const std::string& memory) {
  const auto p = was.blocks.find(memory), q = now.blocks.find(memory);
  if (was.generation != now.generation || was.first_token != now.first_token || p == was.blocks.end() ||
      q == now.blocks.end() || was.tokens == now.tokens)
    return FaultClass::wrong_block_id;
  const std::size_t n = std::min(p->second.size(), q->second.size());
  if (!std::equal(p->second.begin(), p->second.begin() + static_cast<std::ptrdiff_t>(n), q->second.begin()))
    return FaultClass::wrong_block_id;
  return now.tokens > was.tokens ? FaultClass::over_read : FaultClass::truncated;
}

BufferAddress begin_of(const HypothesisSearch& search, const std::string& memory) {
  View whole;
  whole.of = memory;
  const auto addresses = search.evidence().space.addresses(whole, cache_of(search.scenario().memories.at(memory).view));
  return addresses.empty() ? BufferAddress{} : addresses.front();
}

layout::Dtype dtype_of(const Memory& memory) {
  const layout::Cache cache = cache_of(memory.view);
  return cache.planes.empty() ? layout::Dtype::fp32 : cache.planes.front().dtype;
}

// Another memory instead of one.
FaultClass class_of_memory(const HypothesisSearch& search, const std::string& was, const std::string& now) {
  const auto& memories = search.scenario().memories;
  const auto p = memories.find(was), q = memories.find(now);
  if (p == memories.end() || q == memories.end()) return FaultClass::region_aliasing;
  const BufferAddress here = begin_of(search, was), there = begin_of(search, now);
  if (here == there) return FaultClass::wrong_block_id;  // the same bytes, under another table
  // Two caches of one pool: one lies where the other does; if they are laid out differently, it is another base.
  if (here.buffer == there.buffer && !p->second.view.of.empty() + !q->second.view.of.empty() > 0)
    return p->second.view.cache == q->second.view.cache ? FaultClass::region_aliasing : FaultClass::wrong_stride;
  if (dtype_of(p->second) != dtype_of(q->second)) return FaultClass::region_aliasing;
  const auto same = [&](Axis axis) { return domain_of(p->second.view, axis) == domain_of(q->second.view, axis); };
  if (same(Axis::head) && same(Axis::layer) && p->second.rank != q->second.rank) {
    for (const auto& [name, request] : search.scenario().requests) {
      if (request.positions.contains(was) || request.positions.contains(now) ||
          request.blocks.contains(was) != request.blocks.contains(now))
        return FaultClass::wrong_block_id;  // ranks that hold other tokens, or other requests
    }
  }
  if (p->second.rank != q->second.rank || !same(Axis::head)) return FaultClass::head_shard_mapping;
  return same(Axis::layer) ? FaultClass::region_aliasing : FaultClass::layer_misrouted;
}

// One view of a step on another memory.
void generate_memory(HypothesisSearch& search, std::size_t step, bool at_source, std::size_t v, const std::string& name) {
  const Action& a = search.action(step);
  const std::string was = memory_of((at_source ? a.from : a.to)[v]);
  const std::string words = name + " instead of " + was + " in " + symbol_of(search, step);
  const FaultClass fault_class = class_of_memory(search, was, name);
  Action body = a;
  View& view = (at_source ? body.from : body.to)[v];
  // The other memory in its own layout, or its bytes through this one's, with coordinates as here.
  view = search.scenario().memories.at(name).view;
  view.of = name;
  search.attempt(fault_class, words, step, body);
  const Mapping layers = a.op == Operation::move ? mapping_of(search.observed_moves(step),
                                                              [](const ViewElement& e) { return std::optional(e.layer); })
                                                 : Mapping{};
  if (!layers.empty() && !is_identity(layers)) {
    Action mapped = body;
    mapped.pick.layers.emplace(), mapped.pick_to.layers.emplace();
    for (const auto& [to, from] : layers) mapped.pick.layers->push_back(from), mapped.pick_to.layers->push_back(to);
    search.attempt(FaultClass::layer_misrouted, words + ", other layers", step, mapped);
  }
  const auto ids = table_of(search, step, a.request, was);
  if (ids && !table_of(search, step, a.request, name)) {
    (at_source ? body.from_blocks : body.to_blocks) = *ids;
    search.attempt(fault_class, words, step, body);
  }
  Action same = a;
  (at_source ? same.from : same.to)[v].of = name;
  if (ids) (at_source ? same.from_blocks : same.to_blocks) = *ids;
  search.attempt(fault_class, words + ", through the layout of " + was, step, same);
}

void generate_requests(HypothesisSearch& search, std::size_t step) {
  constexpr double mixed = 0.2;  // content of one request with the blocks of another
  const Action& a = search.action(step);
  for (const auto& [name, other] : search.scenario().requests) {
    if (name == a.request || a.request.empty()) continue;
    Action body = a;
    body.request = name;
    const FaultClass fault_class =
        longer_or_shorter(search.scenario().requests.at(a.request), other, memory_of(a.from.empty() ? a.to : a.from));
    search.attempt(fault_class, "request " + name + " instead of " + a.request + " in " + symbol_of(search, step), step,
                   body);
    if (a.op != Operation::write) continue;
    body = a;
    body.generation = other.generation;
    search.penalty(mixed);
    search.attempt(FaultClass::stale_block,
                   "content of " + name + " in the blocks of " + a.request + " in " + symbol_of(search, step), step, body);
    search.penalty(0);
  }
}

}  // namespace

void generate_memories(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!through_views(a)) continue;
    for (const auto& [name, memory] : search.scenario().memories) {
      if (memory.side == "store" || memory.view.cache.empty()) continue;
      for (const bool at_source : {true, false}) {
        const auto& views = at_source ? a.from : a.to;
        for (std::size_t v = 0; v < views.size(); ++v) {
          if (memory_of(views[v]) == name) continue;
          // From where it goes to: nothing would happen, and only the number of bytes moved tells it from that.
          if (!search.counted() && (at_source ? memory_of(a.to) : memory_of(a.from)) == name) continue;
          generate_memory(search, i, at_source, v, name);
        }
        // Everything from the other one.
        if (views.size() > 1) {
          Action body = a;
          View only = memory.view;
          only.of = name;
          (at_source ? body.from : body.to) = {only};
          search.attempt(FaultClass::head_shard_mapping, "only " + name + " in " + symbol_of(search, i), i, body);
        }
      }
    }
    generate_requests(search, i);
  }
}

}  // namespace kvcts::scenario
