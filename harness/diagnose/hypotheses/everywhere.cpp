// One wrong number for all that is moved, at one end: a base that is off, the step of an axis halved or doubled, the next
// rank's memory.
#include <map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

/// Changes the views at one end of every move.
template <class F>
CandidateSteps changed(const HypothesisSearch& search, bool at_source, F&& change) {
  CandidateSteps bodies = search.bodies();
  for (auto& body : bodies) {
    for (Action& a : body) {
      if (a.op != Operation::move) continue;
      for (View& view : at_source ? a.from : a.to) change(view);
    }
  }
  return bodies;
}

/// How far what lies somewhere, or where it lies, is from where it should: the one that most bytes have.
std::int64_t shift_of(HypothesisSearch& search, bool at_source) {
  constexpr int asked = 500;
  std::map<std::int64_t, int> votes;
  int left = asked;
  for (const Attribution& attribution : search.attributions().all) {
    if (!attribution.wrong || left-- == 0) continue;
    for (const BufferAddress& q : search.element_index().of(attribution.must)) {
      if (attribution.is.kind == Symbol::Kind::poison && at_source && attribution.is.buffer == q.buffer)
        ++votes[attribution.is.offset - q.offset];
      if (attribution.is.kind != Symbol::Kind::tag) continue;
      for (const BufferAddress& p : search.element_index().of(attribution.is)) {
        if (at_source && p.buffer == q.buffer) ++votes[p.offset - q.offset];
        if (!at_source && p.buffer == attribution.buffer) ++votes[attribution.offset - p.offset];
      }
    }
  }
  votes.erase(0);
  return votes.empty() ? 0 : most_voted(votes);
}

std::int64_t step_of(const View& view, Axis axis) {
  for (const auto& plane : cache_of(view).planes)
    for (const auto& mode : plane.modes)
      if (plane.component == layout::Component::data && mode.axis == axis) return mode.stride / 8;
  return 0;
}

}  // namespace

void generate_shift(HypothesisSearch& search) {
  constexpr double by_steps = 1.1;  // that is as well a list of ids or heads, which are off by one number
  for (const bool at_source : {true, false}) {
    const std::int64_t shift = shift_of(search, at_source);
    if (shift == 0) continue;
    bool steps = false;
    for (std::size_t i = 0; i < search.scenario().steps.size() && !steps; ++i) {
      if (search.action(i).op != Operation::move) continue;
      for (const Axis axis : {Axis::block, Axis::head}) {
        const std::int64_t step = step_of(at_source ? search.action(i).from[0] : search.action(i).to[0], axis);
        steps = steps || (step != 0 && shift % step == 0);
      }
    }
    search.penalty(steps ? by_steps : 0);
    search.attempt(FaultClass::wrong_stride,
                   std::string("everything was ") + (at_source ? "read " : "written ") + std::to_string(std::abs(shift)) +
                       " bytes further " + (shift > 0 ? "on" : "back"),
                   changed(search, at_source, [&](View& view) { view.offset += shift; }));
  }
  search.penalty(0);
}

void generate_steps(HypothesisSearch& search) {
  bool packed = false;
  for (const auto& [name, memory] : search.scenario().memories)
    for (const auto& plane : cache_of(memory.view).planes)
      packed = packed || (plane.component == layout::Component::data && layout::bits(plane.dtype) < 8);
  for (const auto& [axis, name] :
       {std::pair(Axis::block, "blocks"), std::pair(Axis::slot, "tokens"), std::pair(Axis::head, "heads")}) {
    for (const bool half : {true, false}) {
      for (const bool at_source : {true, false}) {
        // A step in bytes of what is counted in codes.
        search.attempt(!half && packed ? FaultClass::packed_dim_misread : FaultClass::wrong_stride,
                       std::string("the step between ") + name + " of the " + (at_source ? "source" : "destination") +
                           " is " + (half ? "half of" : "twice") + " what it should be",
                       changed(search, at_source, [&, of = axis](View& view) {
                         layout::Cache cache = cache_of(view);
                         for (auto& plane : cache.planes)
                           for (auto& mode : plane.modes)
                             if (mode.axis == of && plane.component == layout::Component::data)
                               mode.stride = half ? mode.stride / 2 : mode.stride * 2;
                         view.cache = layout::to_text(cache);
                       }));
      }
    }
  }
}

void generate_order(HypothesisSearch& search) {
  for (const bool at_source : {true, false}) {
    std::map<std::string, FaultClass> orders;
    std::map<std::string, std::map<std::string, std::string>> read_as;  // cache -> words -> cache
    for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
      if (search.action(i).op != Operation::move) continue;
      for (const View& view : at_source ? search.action(i).from : search.action(i).to) {
        auto& known = read_as[view.cache];
        if (!known.empty()) continue;
        for (const Variant& variant : permuted(cache_of(view), false))
          orders.emplace(variant.words, variant.fault_class), known[variant.words] = layout::to_text(variant.cache);
      }
    }
    for (const auto& [words, fault_class] : orders) {
      search.attempt(fault_class,
                     std::string(at_source ? "read from the source" : "written to the destination") + " with " + words,
                     changed(search, at_source, [&, of = words](View& view) {
                       const auto known = read_as.find(view.cache);
                       if (known == read_as.end()) return;
                       if (const auto as = known->second.find(of); as != known->second.end()) view.cache = as->second;
                     }));
    }
  }
}

void generate_other_rank(HypothesisSearch& search) {
  std::vector<std::string> ranks;
  for (const auto& [name, memory] : search.scenario().memories)
    if (memory.side == "consumer") ranks.push_back(name);
  for (std::size_t by = 1; by < ranks.size(); ++by) {
    search.attempt(FaultClass::head_shard_mapping, "everything went to the same region of another rank",
                   changed(search, false, [&](View& view) {
                     const auto at = std::ranges::find(ranks, view.of);
                     if (at != ranks.end())
                       view.of = ranks[(static_cast<std::size_t>(at - ranks.begin()) + by) % ranks.size()];
                   }));
  }
}

}  // namespace kvcts::scenario
