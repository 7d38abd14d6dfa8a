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

}  // namespace

void generate_memories(HypothesisSearch& search) {
  constexpr double mixed = 0.2;  // content of one request with the blocks of another
  const auto class_of = [&](const std::string& was, const std::string& now) -> FaultClass {
    const auto p = search.scenario().memories.find(was), q = search.scenario().memories.find(now);
    if (p == search.scenario().memories.end() || q == search.scenario().memories.end()) return FaultClass::region_aliasing;
    const auto begin = [&](const std::string& name) {
      View whole;
      whole.of = name;
      const auto addresses = search.evidence().space.addresses(whole, cache_of(search.scenario().memories.at(name).view));
      return addresses.empty() ? BufferAddress{} : addresses.front();
    };
    const BufferAddress here = begin(was), there = begin(now);
    if (here == there) return FaultClass::wrong_block_id;  // the same bytes, under another table
    // Two caches of one pool: one lies where the other does; if they are laid out differently, it is another base.
    if (here.buffer == there.buffer && !p->second.view.of.empty() + !q->second.view.of.empty() > 0) {
      return p->second.view.cache == q->second.view.cache ? FaultClass::region_aliasing : FaultClass::wrong_stride;
    }
    const auto width = [](const Memory& memory) {
      const layout::Cache cache = cache_of(memory.view);
      return cache.planes.empty() ? layout::Dtype::fp32 : cache.planes.front().dtype;
    };
    if (width(p->second) != width(q->second)) return FaultClass::region_aliasing;
    const auto domain = [](const Memory& memory, Axis axis) { return domain_of(memory.view, axis); };
    const bool same_content = domain(p->second, Axis::head) == domain(q->second, Axis::head) &&
                              domain(p->second, Axis::layer) == domain(q->second, Axis::layer);
    if (same_content && p->second.rank != q->second.rank) {
      for (const auto& [name, request] : search.scenario().requests) {
        if (request.positions.contains(was) || request.positions.contains(now) ||
            request.blocks.contains(was) != request.blocks.contains(now))
          return FaultClass::wrong_block_id;  // ranks that hold other tokens, or other requests
      }
    }
    if (p->second.rank != q->second.rank || domain(p->second, Axis::head) != domain(q->second, Axis::head))
      return FaultClass::head_shard_mapping;
    if (domain(p->second, Axis::layer) != domain(q->second, Axis::layer)) return FaultClass::layer_misrouted;
    return FaultClass::region_aliasing;
  };
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
          const std::string was = memory_of(views[v]);
          const std::string words = name + " instead of " + was + " in " + symbol_of(search, i);
          Action body = a;
          View& view = (at_source ? body.from : body.to)[v];
          // The other memory in its own layout, or its bytes through this one's, with coordinates as here.
          view = memory.view;
          view.of = name;
          search.attempt(class_of(was, name), words, i, body);
          if (a.op == Operation::move) {
            if (const Mapping layers =
                    mapping_of(search.observed_moves(i), [](const ViewElement& e) { return std::optional(e.layer); });
                !layers.empty() && !is_identity(layers)) {
              Action mapped = body;
              mapped.pick.layers.emplace(), mapped.pick_to.layers.emplace();
              for (const auto& [to, from] : layers)
                mapped.pick.layers->push_back(from), mapped.pick_to.layers->push_back(to);
              search.attempt(FaultClass::layer_misrouted, words + ", other layers", i, mapped);
            }
          }
          const auto ids = table_of(search, i, a.request, was);
          if (ids && !table_of(search, i, a.request, name)) {
            (at_source ? body.from_blocks : body.to_blocks) = *ids;
            search.attempt(class_of(was, name), words, i, body);
          }
          Action same = a;
          (at_source ? same.from : same.to)[v].of = name;
          if (ids) (at_source ? same.from_blocks : same.to_blocks) = *ids;
          search.attempt(class_of(was, name), words + ", through the layout of " + was, i, same);
        }
        // Everything from the other one.
        if (views.size() > 1) {
          Action body = a;
          auto& all = at_source ? body.from : body.to;
          View only = memory.view;
          only.of = name;
          all = {only};
          search.attempt(FaultClass::head_shard_mapping, "only " + name + " in " + symbol_of(search, i), i, body);
        }
      }
    }
    for (const auto& [name, other] : search.scenario().requests) {
      if (name == a.request || a.request.empty()) continue;
      Action body = a;
      body.request = name;
      const FaultClass fault_class =
          longer_or_shorter(search.scenario().requests.at(a.request), other, memory_of(a.from.empty() ? a.to : a.from));
      search.attempt(fault_class, "request " + name + " instead of " + a.request + " in " + symbol_of(search, i), i, body);
      if (a.op == Operation::write) {
        body = a;
        body.generation = other.generation;
        search.penalty(mixed);
        search.attempt(FaultClass::stale_block,
                       "content of " + name + " in the blocks of " + a.request + " in " + symbol_of(search, i), i, body);
        search.penalty(0);
      }
    }
  }
}

}  // namespace kvcts::scenario
