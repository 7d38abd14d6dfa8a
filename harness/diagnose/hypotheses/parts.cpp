// One step, part by part: a layer, K or V, a head or a destination was treated differently from the rest.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

/// An axis along which a step is cut.
struct Divider {
  const char* what;
  Picks StepSelection::* picks;
  std::int64_t ViewElement::* member;
  Axis axis;
};
const std::array<Divider, 3> dividers{{{"layers", &StepSelection::layers, &ViewElement::layer, Axis::layer},
                                       {"of K and V", &StepSelection::kv, &ViewElement::kv, Axis::kv},
                                       {"heads", &StepSelection::heads, &ViewElement::head, Axis::head}}};

// A step split into several, each for some values of an axis; like parts stay together.
void attempt_cut(HypothesisSearch& search, std::size_t step, const Divider& cut, FaultClass fault_class,
                 const std::string& words, const std::vector<std::pair<Action, std::int64_t>>& parts) {
  std::vector<std::pair<Action, std::set<std::int64_t>>> groups;
  for (const auto& [body, value] : parts) {
    const auto same = std::ranges::find_if(groups, [&](const auto& g) { return g.first == body; });
    if (same == groups.end())
      groups.push_back({body, {value}});
    else
      same->second.insert(value);
  }
  if (groups.size() < 2) return;
  CandidateSteps bodies = search.bodies();
  bodies[step].clear();
  for (auto& [body, values] : groups) {
    keep_only(body, cut.picks, values);
    bodies[step].push_back(body);
  }
  search.attempt(fault_class, words + " in " + symbol_of(search, step), std::move(bodies));
}

// A separate block table for each layer, K and V, or head.
void generate_own_tables(HypothesisSearch& search, std::size_t i) {
  const Action& a = search.action(i);
  for (const Divider& cut : dividers) {
    std::map<std::int64_t, std::vector<const ObservedMove*>> by_value;
    for (const ObservedMove& s : search.observed_moves(i)) {
      if (s.at) by_value[(*s.at).*cut.member].push_back(&s);
    }
    if (by_value.size() < 2 || by_value.size() > 64) continue;
    for (const bool at_source : {true, false}) {
      const Ids usual = table_at(search, i, at_source).value_or(Ids{});
      if (usual.empty()) continue;
      std::vector<std::pair<Action, std::int64_t>> parts;
      std::string odd;
      for (const auto& [value, part] : by_value) {
        Action body = a;
        const Ids ids = table_shown(search, i, at_source, part);
        if (ids != usual) {
          (at_source ? body.from_blocks : body.to_blocks) = ids;
          odd = list_text(ids);
        }
        parts.emplace_back(std::move(body), value);
      }
      if (!odd.empty())
        attempt_cut(search, i, cut, FaultClass::wrong_block_id,
                    std::string("some ") + cut.what + " by the blocks " + odd + " instead of " + list_text(usual), parts);
    }
  }
}

// What did not move is no whole layer, head or run of tokens, but part of one.
void generate_holes(HypothesisSearch& search, std::size_t i) {
  const Action& a = search.action(i);
  struct Pair {
    std::size_t of, within;
    FaultClass fault_class;
  };
  for (const Pair& pair : {Pair{0, 1, FaultClass::layer_missing}, Pair{1, 0, FaultClass::layer_missing},
                           Pair{0, 2, FaultClass::head_shard_mapping}, Pair{2, 0, FaultClass::head_shard_mapping},
                           Pair{1, 2, FaultClass::head_shard_mapping}}) {
    const Divider &outer = dividers[pair.of], &inner = dividers[pair.within];
    std::map<std::int64_t, std::map<std::int64_t, bool>> touched;
    for (const ObservedMove& s : search.observed_moves(i)) {
      if (!s.taken) continue;
      bool& any = touched[(*s.at).*outer.member][(*s.at).*inner.member];
      any = any || !s.attribution->wrong || !s.attribution->untouched;
    }
    std::vector<std::pair<Action, std::int64_t>> parts;
    for (const auto& [value, inside] : touched) {
      std::set<std::int64_t> there;
      for (const auto& [v, any] : inside) {
        if (any) there.insert(v);
      }
      if (there.empty()) continue;
      Action body = a;
      if (there.size() < inside.size()) keep_only(body, inner.picks, there);
      parts.emplace_back(std::move(body), value);
    }
    if (touched.size() > 1)
      attempt_cut(search, i, outer, pair.fault_class, std::string("only some ") + inner.what + " of some " + outer.what,
                  parts);
  }
}

// Regions paired by their index: a layer's K or V went to the K or V of another one.
void generate_regions(HypothesisSearch& search, std::size_t i) {
  const Action& a = search.action(i);
  if (a.op != Operation::move || a.pick_to.layers || a.pick_to.kv) return;
  using Region = std::pair<std::int64_t, std::int64_t>;  // layer, kv
  std::map<Region, std::map<Region, std::int64_t>> votes;
  for (const ObservedMove& s : search.observed_moves(i)) {
    if (s.taken && s.from) ++votes[{s.at->layer, s.at->kv}][{s.from->layer, s.from->kv}];
  }
  bool layers = false, changed = false;
  std::string words;
  CandidateSteps bodies = search.bodies();
  bodies[i].clear();
  for (const auto& [to, counts] : votes) {
    const Region from = most_voted(counts);
    Action body = a;
    body.pick.layers = {from.first}, body.pick_to.layers = {to.first};
    body.pick.kv = {from.second}, body.pick_to.kv = {to.second};
    bodies[i].push_back(std::move(body));
    if (from == to) continue;
    changed = true, layers = layers || from.first != to.first;
    const auto name = [](const Region& r) {
      return std::string(r.second ? "V" : "K") + " of layer " + std::to_string(r.first);
    };
    if (words.size() < 120) words += (words.empty() ? "" : ", ") + name(from) + " went to " + name(to);
  }
  if (changed && bodies[i].size() <= 256)
    search.attempt(layers ? FaultClass::layer_misrouted : FaultClass::kv_split_vs_interleaved,
                   words + " in " + symbol_of(search, i), std::move(bodies));
}

// Of several memories at an end, some were left out.
void generate_fewer_views(HypothesisSearch& search, std::size_t i) {
  const Action& a = search.action(i);
  for (const bool at_source : {false, true}) {
    const auto& views = at_source ? a.from : a.to;
    if (views.size() < 2 || views.size() > 8) continue;
    for (std::size_t mask = 1; mask + 1 < std::size_t{1} << views.size(); ++mask) {
      Action body = a;
      auto& kept = at_source ? body.from : body.to;
      kept.clear();
      std::string missing;
      bool layers = true, heads = false;
      for (std::size_t v = 0; v < views.size(); ++v) {
        if (mask >> v & 1) kept.push_back(views[v]);
      }
      for (std::size_t v = 0; v < views.size(); ++v) {
        if (mask >> v & 1) continue;
        missing += (missing.empty() ? "" : ", ") + memory_of(views[v]);
        for (const View& other : kept) {
          layers = layers && domain_of(views[v], Axis::layer) != domain_of(other, Axis::layer);
          const auto rank = [&](const View& view) { return search.scenario().memories.at(memory_of(view)).rank; };
          heads = heads || domain_of(views[v], Axis::head) != domain_of(other, Axis::head) || rank(views[v]) != rank(other);
        }
      }
      FaultClass fault_class = layers  ? FaultClass::layer_missing
                               : heads ? FaultClass::head_shard_mapping
                                       : FaultClass::silently_skipped;
      search.attempt(
          fault_class,
          "nothing was moved " + std::string(at_source ? "from " : "to ") + missing + " in " + symbol_of(search, i), i,
          body);
    }
  }
}

// Something was copied where nothing was intended: contiguous runs of bytes from elsewhere.
void generate_unexpected(HypothesisSearch& search, std::size_t i) {
  struct UnexpectedSource {
    BufferAddress from, to;
    std::int64_t bytes;
  };
  std::vector<UnexpectedSource> unexpected_sources;
  const auto images = search.images_before(i);
  const ElementIndex addresses(
      images, [&](int buffer) { return buffer < static_cast<int>(search.evidence().space.buffers().size()); },
      search.evidence().symbols);
  for (const Attribution& attribution : search.attributions().all) {
    if (!attribution.wrong || attribution.is.kind != Symbol::Kind::tag) continue;
    const auto found = addresses.of(attribution.is);
    if (found.empty() || unexpected_sources.size() > 64) return;
    const BufferAddress to{attribution.buffer, attribution.offset};
    if (!unexpected_sources.empty()) {
      UnexpectedSource& last = unexpected_sources.back();
      const BufferAddress next{last.from.buffer, last.from.offset + last.bytes};
      const bool follows = last.to.buffer == to.buffer && last.to.offset + last.bytes == to.offset &&
                           std::ranges::find(found, next) != found.end();
      if (follows) {
        ++last.bytes;
        continue;
      }
    }
    unexpected_sources.push_back({found.front(), to, 1});
  }
  if (unexpected_sources.empty()) return;
  const auto name_in = [&](int buffer) {
    for (const Buffer& b : search.evidence().space.buffers()) {
      if (b.ordinal == buffer) return b.name;
    }
    return std::string();
  };
  CandidateSteps bodies = search.bodies();
  bodies[i].clear();
  std::int64_t all = 0;
  for (const UnexpectedSource& unexpected : unexpected_sources) {
    Action copy;
    copy.op = Operation::copy;
    copy.from.emplace_back(), copy.to.emplace_back();
    copy.from[0].of = name_in(unexpected.from.buffer), copy.to[0].of = name_in(unexpected.to.buffer);
    copy.from_offset = unexpected.from.offset, copy.to_offset = unexpected.to.offset, copy.bytes = unexpected.bytes;
    bodies[i].push_back(std::move(copy));
    all += unexpected.bytes;
  }
  search.attempt(FaultClass::stale_block,
                 std::to_string(all) + " bytes of " + name_in(unexpected_sources[0].from.buffer) + " were copied over " +
                     name_in(unexpected_sources[0].to.buffer) + " in " + symbol_of(search, i) + ", where nothing was meant",
                 std::move(bodies));
}

}  // namespace

void generate_parts(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op == Operation::nothing) generate_unexpected(search, i);
    if (a.op != Operation::move && a.op != Operation::put && a.op != Operation::get && a.op != Operation::write) continue;
    if (!search.scenario().requests.contains(a.request)) continue;
    generate_fewer_views(search, i);
    generate_holes(search, i);
  }
}

void generate_part_by_part(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!search.scenario().requests.contains(a.request)) continue;
    generate_regions(search, i);
    if (a.op == Operation::read || a.op == Operation::move) generate_own_tables(search, i);
  }
}

}  // namespace kvcts::scenario
