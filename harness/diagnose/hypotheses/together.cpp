// One mistake in several steps, each with its own numbers: derives each step's behaviour separately, then tries all at once.
#include <algorithm>
#include <map>
#include <set>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

namespace {

// Where each value of an axis went, by most of its elements that are in the step's source.
template <class AxisOf>
std::map<std::int64_t, std::int64_t> ways_out(const std::vector<ObservedMove>& observed_moves, const Picks& taken,
                                              AxisOf axis) {
  std::map<std::int64_t, std::map<std::int64_t, std::int64_t>> votes;
  for (const ObservedMove& s : observed_moves) {
    if (!s.from || !s.source || !s.at) continue;
    const std::optional<std::int64_t> from = axis(*s.from), at = axis(*s.at);
    if (!from || !at || !picked(taken, *from)) continue;
    ++votes[*from][*at];
  }
  std::map<std::int64_t, std::int64_t> out;
  for (const auto& [from, counts] : votes) {
    out[from] = most_voted(counts);
  }
  return out;
}

// All writers of a memory use another order of layers, heads, or K and V, and its readers undo that order: lossless.
void generate_shared_orders(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
    for (const Hypothesis& mistake : search.local(i)) {
      if (mistake.bodies[i].size() != 1 || mistake.bodies[i][0].to.size() != 1) continue;
      const Action& wrote = mistake.bodies[i][0];
      const std::string memory = memory_of(wrote.to[0]);
      CandidateSteps bodies = mistake.bodies;
      bool any = false;
      for (std::size_t k = i + 1; k < bodies.size(); ++k) {
        for (Action& a : bodies[k]) {
          if (a.from.size() != 1 || memory_of(a.from[0]) != memory || (a.op != Operation::move && a.op != Operation::read))
            continue;
          for (Picks StepSelection::* axis : {&StepSelection::layers, &StepSelection::kv, &StepSelection::heads}) {
            if (!(wrote.pick_to.*axis) || a.pick.*axis || a.pick_to.*axis) continue;
            // Element pick i lies at place pick_to i.
            a.pick.*axis = wrote.pick_to.*axis;
            if (a.op == Operation::move) a.pick_to.*axis = wrote.pick.*axis;
            any = true;
          }
        }
      }
      if (any)
        search.attempt(mistake.fault_class, mistake.words + ", and every reader of " + memory + " expects that",
                       std::move(bodies));
    }
  }
}

}  // namespace

void generate_ways_out(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op != Operation::move || !search.scenario().requests.contains(a.request)) continue;
    using Range = std::pair<std::int64_t, std::int64_t>;
    const auto try_axis = [&](auto axis, const Range& all, Picks StepSelection::* member, const char* what,
                              FaultClass fault_class) {
      const auto ways = ways_out(search.observed_moves(i), a.pick.*member, axis);
      std::vector<std::int64_t> from, to;
      bool as_meant = true;
      for (const auto& [source, destination] : ways) {
        from.push_back(source), to.push_back(destination);
        as_meant = as_meant && picked_destination(a.pick.*member, a.pick_to.*member, source) == destination;
      }
      if (as_meant) return;
      const auto attempt = [&] {
        Action body = a;
        body.pick.*member = from, body.pick_to.*member = to;
        search.attempt(fault_class, went_to(what, from, to) + " in " + symbol_of(search, i), i, body);
      };
      attempt();
      // All as far off as those still there: the others were overwritten or left the destination.
      const std::int64_t shift = from.empty() ? 0 : to.front() - from.front();
      const bool alike = std::ranges::all_of(ways, [&](const auto& way) { return way.second - way.first == shift; });
      if (!alike || shift == 0) return;
      from.clear(), to.clear();
      for (std::int64_t value = all.first; value < all.second; ++value) {
        if (picked(a.pick.*member, value)) from.push_back(value), to.push_back(value + shift);
      }
      if (from.size() > ways.size()) attempt();
    };
    const ScenarioRequest request = *search.request_at(i, a.request);
    const auto domain = [&](layout::Axis of) { return domain_of(a.from.front(), of); };
    const auto asked = a.parts == "scales" ? layout::Component::scale : layout::Component::data;
    try_axis([](const ViewElement& e) { return std::optional(e.layer); }, domain(layout::Axis::layer),
             &StepSelection::layers, "layers", FaultClass::layer_misrouted);
    try_axis([](const ViewElement& e) { return std::optional(e.head); }, domain(layout::Axis::head), &StepSelection::heads,
             "heads", FaultClass::head_shard_mapping);
    try_axis([](const ViewElement& e) { return std::optional(e.kv); }, domain(layout::Axis::kv), &StepSelection::kv, "kv",
             FaultClass::kv_split_vs_interleaved);
    try_axis([&](const ViewElement& e) { return e.component == asked ? e.token : std::nullopt; },
             Range{request.first_token, request.first_token + request.tokens}, &StepSelection::tokens, "tokens",
             asked == layout::Component::scale ? FaultClass::scale_misplaced : FaultClass::wrong_block_id);
  }
}

// Every step that has a mistake of one class makes it.
void generate_alike(HypothesisSearch& search) {
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
    if (!search.local(i).empty()) steps.push_back(i);
  }
  if (steps.size() < 2) return;
  std::set<FaultClass> asked;
  for (const std::size_t lead : steps) {
    for (const Hypothesis& mistake : search.local(lead)) {
      if (!asked.insert(mistake.fault_class).second) continue;
      CandidateSteps bodies = search.bodies();
      std::string words;
      std::size_t changed = 0;
      for (const std::size_t i : steps) {
        const auto& all = search.local(i);
        const auto same = std::ranges::find(all, mistake.fault_class, &Hypothesis::fault_class);
        if (same == all.end()) continue;
        bodies[i] = same->bodies[i];
        words += (words.empty() ? "" : "; ") + same->words;
        ++changed;
      }
      if (changed > 1) search.attempt(mistake.fault_class, words, std::move(bodies));
    }
  }
}

void generate_together(HypothesisSearch& search) {
  generate_shared_orders(search);
  generate_alike(search);
  if (!search.found()) generate_tables_together(search);
}

}  // namespace kvcts::scenario
