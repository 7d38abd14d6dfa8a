// A wrong idea of a memory that only some steps have: a connector believes it and kernels do not, or only readers do, or
// only writers.
#include <algorithm>
#include <map>
#include <set>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

namespace {

/// A view of a step.
struct Use {
  std::size_t step;
  bool at_source;
  std::size_t view;
  auto operator<=>(const Use&) const = default;
};
using Uses = std::set<Use>;

bool transfers(const Action& a) { return a.op == Operation::move || a.op == Operation::put || a.op == Operation::get; }

/// Who may share a wrong idea, with words for it.
std::vector<std::pair<std::string, Uses>> circles(const HypothesisSearch& search, const Uses& all) {
  std::vector<std::pair<std::string, Uses>> out;
  std::set<Uses> known{all, {}};
  const auto add = [&](const std::string& words, const auto& belongs) {
    Uses some;
    for (const Use& use : all) {
      if (belongs(use)) some.insert(use);
    }
    if (known.insert(some).second) out.emplace_back(words, some);
  };
  add("in transfers: ", [&](const Use& u) { return transfers(search.action(u.step)); });
  add("where it is written: ", [](const Use& u) { return !u.at_source; });
  add("where it is read: ", [](const Use& u) { return u.at_source; });
  add("in transfers out of it: ", [&](const Use& u) { return u.at_source && transfers(search.action(u.step)); });
  add("in transfers into it: ", [&](const Use& u) { return !u.at_source && transfers(search.action(u.step)); });
  add("in kernels: ", [&](const Use& u) { return !transfers(search.action(u.step)); });
  std::set<std::string> requests;
  for (const Use& use : all) requests.insert(search.action(use.step).request);
  for (const std::string& request : requests)
    add("for " + request + ": ", [&](const Use& u) { return search.action(u.step).request == request; });
  if (all.size() <= 8) {
    for (const Use& use : all)
      add("but in " + symbol_of(search, use.step) + ": ", [&](const Use& u) { return u.step != use.step; });
    for (const Use& use : all)
      add("from " + symbol_of(search, use.step) + " on: ", [&](const Use& u) { return u.step >= use.step; });
  }
  std::erase_if(out, [](const auto& circle) { return circle.second.size() < 2; });  // one step: a separate generator
  return out;
}

// If a transfer is among them, the origin of its bytes shows whether the idea is worth trying.
bool likely(HypothesisSearch& search, const CandidateSteps& bodies, const Uses& uses) {
  bool asked = false;
  for (const Use& use : uses) {
    const Action& a = search.action(use.step);
    if (a.op != Operation::move || a.from.size() != 1 || a.to.size() != 1 || search.byte_moves(use.step).empty()) continue;
    asked = true;
    if (search.agreement(use.step, bodies[use.step].front()).best() > 0.99) return true;
  }
  return !asked;
}

}  // namespace

void generate_some_beliefs(HypothesisSearch& search) {
  // Memories declared alike share one idea, too.
  std::map<std::string, Uses> by_memory, by_layout;
  std::map<std::string, std::string> layout_of;
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
    const Action& a = search.action(i);
    if (!transfers(a) && a.op != Operation::read && a.op != Operation::write) continue;
    for (const bool at_source : {true, false}) {
      const auto& views = at_source ? a.from : a.to;
      for (std::size_t v = 0; v < views.size(); ++v) {
        const std::string memory = memory_of(views[v]);
        const auto declared = search.scenario().memories.find(memory);
        if (declared == search.scenario().memories.end() || views[v].cache.empty() ||
            views[v].cache != declared->second.view.cache)
          continue;
        by_memory[memory].insert({i, at_source, v});
        by_layout[views[v].cache].insert({i, at_source, v});
        layout_of[memory] = views[v].cache;
      }
    }
  }
  std::vector<std::pair<std::string, std::pair<std::string, Uses>>> beliefs;  // layout, (words, uses)
  std::set<Uses> known;
  for (const auto& [memory, uses] : by_memory) {
    for (auto& [words, some] : circles(search, uses)) {
      if (known.insert(some).second) beliefs.push_back({layout_of[memory], {memory + " " + words, some}});
    }
  }
  for (const auto& [layout, uses] : by_layout) {
    for (auto& [words, some] : circles(search, uses)) {
      if (known.insert(some).second) beliefs.push_back({layout, {"memories declared alike, " + words, some}});
    }
  }
  using Variants = std::vector<Variant> (*)(const layout::Cache&);
  const Variants kinds[] = {
      [](const layout::Cache& c) { return permuted(c, false, true); }, renamed, reblocked, resized, recoded, rescaled,
      [](const layout::Cache& c) { return restrided(c, {}); }};
  for (const Variants variants : kinds) {
    for (const auto& [layout, circle] : beliefs) {
      const auto& [words, uses] = circle;
      for (const Variant& variant :
           variants(cache_of(search.action(uses.begin()->step).from.empty() || !uses.begin()->at_source
                                 ? search.action(uses.begin()->step).to[uses.begin()->view]
                                 : search.action(uses.begin()->step).from[uses.begin()->view]))) {
        if (search.spent()) return;
        CandidateSteps bodies = search.bodies();
        const std::string now = layout::to_text(variant.cache);
        for (const Use& use : uses) {
          if (bodies[use.step].size() != 1) continue;
          Action& a = bodies[use.step].front();
          (use.at_source ? a.from : a.to)[use.view].cache = now;
        }
        if (likely(search, bodies, uses)) search.attempt(variant.fault_class, words + variant.words, std::move(bodies));
      }
    }
    if (search.found()) return;
  }
}

}  // namespace kvcts::scenario
