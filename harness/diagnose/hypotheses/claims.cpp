// The steps did as they should by what is claimed of a memory, and the claim is wrong.
#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

void generate_claims(HypothesisSearch& search) {
  for (const Claim& claim : search.evidence().claims) {
    CandidateSteps bodies = search.bodies();
    for (auto& body : bodies) {
      for (Action& a : body) {
        if (!brings(a)) continue;
        for (auto* views : {&a.from, &a.to})
          for (View& view : *views)
            if (const auto cache = claim.caches.find(view.of); cache != claim.caches.end()) view.cache = cache->second;
      }
    }
    search.attempt(claim.fault_class, claim.words, std::move(bodies));
  }
}

}  // namespace kvcts::scenario
