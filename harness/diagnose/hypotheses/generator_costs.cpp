#include "diagnose/hypothesis_search.hpp"
#include "diagnose/precedence.hpp"

namespace kvcts::scenario {

std::vector<GeneratorCost> generator_costs() {
  std::vector<GeneratorCost> out;
  for (const HypothesisGenerator& generator : generators())
    out.push_back({generator.name, generator.cost, generator.classes});
  return out;
}

}  // namespace kvcts::scenario
