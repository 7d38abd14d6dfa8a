// The smallest case that fails in the same way: reductions are proposed (reductions.hpp), really run, and kept while outcome
// and class stay.
//
// Where a case has a control that heals it (the same steps as intended, the same sides without a false claim), a smaller
// case counts only if that control still ends as it did: a case that cannot pass at all shows nothing. Deterministic: the
// same case, the same program and the same runner give the same steps.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "case/case.hpp"
#include "case/catalogue/catalogue.hpp"
#include "case/result.hpp"
#include "case/spec.hpp"

namespace kvcts::minimize {

/// The case cannot be minimised: it does not fail, or not each time. One sentence for people.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs cases in order until `enough` says so of a result; what it has not run is missing at the end. Results in order.
using Runner = std::function<std::vector<CaseResult>(const std::vector<ResolvedCase>& cases,
                                                     const std::function<bool(const CaseResult&)>& enough)>;

struct Accepted {
  std::string words;  ///< "layers 3 -> 1"
  int tries{0};       ///< up to here
};

/// What a case is made of, in the order in which it is told: "blocks", 8.
using Sizes = std::vector<std::pair<std::string, std::int64_t>>;

struct Minimum {
  CaseSpec spec;            ///< smallest; id, title and expected as given
  nlohmann::json document;  ///< the same as a document, with the controls that still hold
  CaseResult first, last;   ///< of the case as given, and of the smallest
  Sizes before, after;
  int tries{0};
  std::vector<Accepted> steps;
  bool finished{false};  ///< false: `tries` were used up
};

struct Options {
  int tries{400};
  std::int64_t deadline_ms{5'000};  ///< the most that any phase of a trial may take
  std::function<void(const Accepted&)> on_step;
};

/// Throws Error when the case does not fail or does so differently the second time, and what resolve() throws on the case
/// itself.
Minimum minimize(const CaseSpec& spec, const catalogue::Catalogue& catalogue, const Runner& run, const Options& options);

/// Same outcome, class and phase, wrong bytes in both or in neither; a crash by the same signal, a refusal in the same
/// words.
bool same_failure(const CaseResult& a, const CaseResult& b);

/// "layers", "blocks", ... of a case, with the bytes of its memories.
Sizes sizes_of(const ResolvedCase& resolved);
/// "8 blocks -> 1, 3 layers -> 1": what became smaller.
std::string words_of(const Sizes& before, const Sizes& after);

}  // namespace kvcts::minimize
