// Something happened where nothing was meant: a step again, or a load of some object. What other requests do there is in
// orders.cpp.
#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

namespace {

/// Gets what was put.
Action load_of(const Action& put, const std::string& request) {
  Action get;
  get.op = Operation::get;
  get.request = request, get.store = put.store, get.key = put.key;
  get.to = put.from, get.pick = put.pick, get.parts = put.parts;
  return get;
}

}  // namespace

void generate_extra(HypothesisSearch& search) {
  const auto& steps = search.scenario().steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (search.action(i).op != Operation::nothing) continue;
    const auto here = [&](FaultClass fault_class, const std::string& words, const Action& extra) {
      CandidateSteps bodies = search.bodies();
      bodies[i] = {extra};
      search.attempt(fault_class, words + " in " + symbol_of(search, i) + ", where nothing was meant", std::move(bodies));
    };
    for (std::size_t j = 0; j < steps.size() && !search.spent(); ++j) {
      const Action& other = search.action(j);
      if (other.op == Operation::move || other.op == Operation::get)
        here(FaultClass::stale_block, symbol_of(search, j) + " happened again", other);
      if (other.op != Operation::put) continue;
      for (const auto& [request, declared] : search.scenario().requests) {
        here(request == other.request ? FaultClass::stale_block : FaultClass::wrong_block_id,
             "the object of " + symbol_of(search, j) + " was loaded for request " + request, load_of(other, request));
      }
    }
  }
}

}  // namespace kvcts::scenario
