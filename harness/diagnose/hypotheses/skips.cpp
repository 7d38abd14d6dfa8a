// Steps that did not happen, and what their absence means.
#include <algorithm>
#include <map>

#include "diagnose/hypotheses/tools.hpp"
#include "diagnose/quantity.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

// The heads that a step takes: its picks, or those of its source.
std::vector<std::int64_t> heads_of(const Action& a) {
  if (a.pick.heads) return *a.pick.heads;
  std::set<std::int64_t> heads;
  for (const View& view : a.from) {
    for (const auto& plane : cache_of(view).planes) {
      const layout::Box box = layout::domain(plane);
      for (std::int64_t h = box.lo[Axis::head]; h < box.hi[Axis::head]; ++h) heads.insert(h);
    }
  }
  return {heads.begin(), heads.end()};
}
// Whether two owners have a block of a memory in common, by their initial tables.
bool have_common_block(const ScenarioRequest& mine, const ScenarioRequest& theirs, const std::string& memory) {
  const auto p = mine.blocks.find(memory), q = theirs.blocks.find(memory);
  return p != mine.blocks.end() && q != theirs.blocks.end() && std::ranges::any_of(p->second, [&](std::int64_t id) {
           return std::ranges::find(q->second, id) != q->second.end();
         });
}

// Left with another owner's blocks: one owner too many.
FaultClass class_of_missing_table(const HypothesisSearch& search, const Action& assign) {
  const auto& requests = search.scenario().requests;
  const auto old = requests.find(assign.request);
  for (const auto& [memory, ids] : assign.blocks) {
    for (const auto& [name, request] : requests) {
      if (name != assign.request && old != requests.end() && have_common_block(old->second, request, memory))
        return FaultClass::stale_block;
    }
  }
  return FaultClass::wrong_block_id;
}

// Whether one of the first `count` steps is such.
template <class F>
bool any_step(const HypothesisSearch& search, std::size_t count, F&& is) {
  for (std::size_t i = 0; i < count; ++i) {
    if (is(i, search.action(i))) return true;
  }
  return false;
}

// The meaning of missing moves where steps like them happened.
FaultClass class_of_absence_among(const HypothesisSearch& search, const Action& first,
                                  const std::vector<std::size_t>& others) {
  const bool same_request =
      std::ranges::any_of(others, [&](std::size_t i) { return search.action(i).request == first.request; });
  // Whole requests, of several.
  if (!same_request && !first.request.empty())
    return reported_done(search) ? FaultClass::false_success : FaultClass::silently_skipped;
  for (const std::size_t i : others) {
    const Action& a = search.action(i);
    if (memory_of(a.to) != memory_of(first.to) || a.request != first.request) continue;
    // The same caches, another part of the request: pieces of one transfer.
    if (memory_of(a.from) == memory_of(first.from) && a.pick.layers == first.pick.layers && a.pick.kv == first.pick.kv)
      return reported_failure(search) && reported_done(search) ? FaultClass::false_success : FaultClass::truncated;
    // Other heads of the same place, from another rank: a shard.
    if (heads_of(a) != heads_of(first))
      return reported_done(search) ? FaultClass::false_success : FaultClass::head_shard_mapping;
    // The same place, from elsewhere: one of two passes over it, a conversion.
    if (a.pick.layers == first.pick.layers) return FaultClass::silently_skipped;
  }
  return FaultClass::layer_missing;
}

}  // namespace

FaultClass class_of_length(const HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  const auto before = search.request_at(step, a.request);
  if (a.op != Operation::assign || !a.tokens || !before || !a.blocks.empty() || a.generation || *a.tokens == before->tokens)
    return FaultClass::none;
  return before->tokens > *a.tokens ? FaultClass::over_read : FaultClass::truncated;
}
FaultClass class_of_absence(const HypothesisSearch& search, const std::set<std::size_t>& steps) {
  const std::size_t at = *steps.begin(), count = search.scenario().steps.size();
  const Action& first = search.action(at);
  if (first.op == Operation::fill) return FaultClass::stale_block;
  if (first.op == Operation::register_range) return FaultClass::registration_missing_region;
  if (first.op == Operation::assign && first.blocks.empty() && first.generation)
    return FaultClass::stale_block;  // older content is taken for the new
  if (const FaultClass length = class_of_length(search, at); length != FaultClass::none) return length;
  if (first.op == Operation::put && any_step(search, at, [&](std::size_t, const Action& a) {
        return a.op == Operation::put && a.store == first.store && a.key == first.key;
      }))
    return FaultClass::stale_block;
  if (first.op == Operation::assign) return class_of_missing_table(search, first);
  if (first.op == Operation::read &&
      any_step(search, count, [&](std::size_t i, const Action& a) { return a.op == Operation::read && !steps.contains(i); }))
    return FaultClass::truncated;  // one request of a batch
  if (first.op == Operation::write) {
    // Someone moved before it was written, or the old content stayed.
    const bool before = any_step(search, at, [&](std::size_t, const Action& a) {
      return (a.op == Operation::write || a.op == Operation::move || a.op == Operation::get) &&
             memory_of(a.to) == memory_of(first.to);
    });
    return before ? FaultClass::stale_block : FaultClass::read_before_ready;
  }
  if (first.parts == "scales") return FaultClass::scale_lost;
  if (first.op == Operation::require || first.op == Operation::unpack || first.op == Operation::refuse)
    return FaultClass::none;
  // Storing and fetching are two directions: a get is no part of a put.
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < count; ++i) {
    const Action& a = search.action(i);
    if (brings(a) && !steps.contains(i) && (a.op == Operation::put) == (first.op == Operation::put)) others.push_back(i);
  }
  if (!others.empty() && brings(first)) return class_of_absence_among(search, first, others);
  return reported_done(search) ? FaultClass::false_success : FaultClass::silently_skipped;
}

namespace {

// A check that did not happen, by what it compares.
FaultClass class_of_unmet(const std::string& about) {
  const FaultClass known = class_of_quantity(about);
  return known == FaultClass::none ? FaultClass::capability_mismatch : known;
}

// Neither registered nor moved: the memory was unknown.
void generate_unregistered(HypothesisSearch& search, const std::set<std::size_t>& moves) {
  const auto& steps = search.scenario().steps;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    if (search.action(r).op != Operation::register_range) continue;
    const std::string memory = search.action(r).memory.substr(0, search.action(r).memory.find('/'));
    std::set<std::size_t> both{r};
    for (const std::size_t i : moves) {
      if (memory_of(search.action(i).from) == memory || memory_of(search.action(i).to) == memory) both.insert(i);
    }
    const bool unregistered = std::ranges::none_of(search.evidence().observation.events, [&](const auto& event) {
      return event.value("op", "") == "register" && event.value("step", "") == steps[r].name;
    });
    if (unregistered && both.size() > 1)
      search.attempt_without(FaultClass::registration_missing_region, memory + " was neither registered nor moved", both);
  }
}

}  // namespace

void generate_skips(HypothesisSearch& search) {
  const auto& steps = search.scenario().steps;
  std::set<std::size_t> moves;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Action& a = search.action(i);
    if (a.op == Operation::require || a.op == Operation::unpack) {
      search.attempt_without(class_of_unmet(a.op == Operation::unpack ? "dims" : a.about),
                             symbol_of(search, i) + " was not checked", {i});
    } else if (a.op == Operation::refuse) {
      search.attempt_without(class_of_unmet(a.about.empty() ? "capability" : a.about),
                             "accepted what had to be refused: " + a.text, {i});
    } else if (brings(a)) {
      moves.insert(i);
    }
  }
  if (search.found()) return;
  generate_unregistered(search, moves);
  if (search.found()) return;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Action& a = search.action(i);
    if (!search.moves(i) && a.op != Operation::register_range && a.op != Operation::assign) continue;
    const FaultClass fault_class = class_of_absence(search, {i});
    const bool alone = fault_class == FaultClass::layer_missing && alone_to_its_memory(search, i);
    search.attempt_without(
        fault_class, alone ? "nothing was moved to " + memory_of(a.to) : symbol_of(search, i) + " never happened", {i});
  }
  if (moves.size() > 1) search.attempt_without(class_of_absence(search, moves), "nothing was moved", moves);
  // Memories where nothing arrived.
  std::set<std::size_t> nowhere;
  for (const std::size_t i : moves) {
    std::size_t taken = 0, untouched = 0;
    for (const ObservedMove& s : search.observed_moves(i))
      taken += s.taken, untouched += s.taken && s.attribution->untouched;
    if (taken > 0 && taken == untouched) nowhere.insert(i);
  }
  if (nowhere.size() > 1 && nowhere.size() < moves.size()) {
    std::string words;
    for (const std::size_t i : nowhere) words += (words.empty() ? "" : ", ") + symbol_of(search, i);
    search.attempt_without(class_of_absence(search, nowhere), words + " never happened", nowhere);
  }
  // Every move of one pair of memories.
  std::map<std::string, std::set<std::size_t>> by_memory;
  for (const std::size_t i : moves) by_memory[memory_of(search.action(i).to)].insert(i);
  for (const auto& [memory, group] : by_memory) {
    if (group.size() > 1 && group.size() < moves.size())
      search.attempt_without(class_of_absence(search, group), "nothing was moved to " + memory, group);
  }
}

}  // namespace kvcts::scenario
