// Finds the smallest case that fails in the same way: proposes reductions (reductions.hpp), runs each, and keeps
// those that preserve outcome and class.
//
// If the case has a healing control (the same steps as intended, the same sides without a false claim), a smaller
// case counts only if that control still ends as before: a case that can never pass shows nothing. Deterministic: the
// same case, program and runner give the same steps.
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

/// The case cannot be minimised: it does not fail, or not every time. One sentence for people.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs cases in order until `enough` accepts a result; cases not run are missing at the end. Results in order.
using Runner = std::function<std::vector<CaseResult>(const std::vector<ResolvedCase>& cases,
                                                     const std::function<bool(const CaseResult&)>& enough)>;

struct Accepted {
  std::string words;  ///< "layers 3 -> 1"
  int tries{0};       ///< total so far
};

/// The sizes of a case, in display order: "blocks", 8.
using Sizes = std::vector<std::pair<std::string, std::int64_t>>;

struct Minimum {
  CaseSpec spec;            ///< smallest; id, title and expected as given
  nlohmann::json document;  ///< the same as a document, with the controls that still hold
  CaseResult first, last;   ///< of the given case, and of the smallest
  Sizes before, after;
  int tries{0};
  std::vector<Accepted> steps;
  bool finished{false};  ///< false: `tries` were used up
};

struct MinimizeOptions {
  int tries{400};
  std::int64_t deadline_ms{5'000};  ///< upper limit for each phase of a trial
  std::function<void(const Accepted&)> on_step;
};

/// Throws Error if the case does not fail, or fails differently the second time; passes on what resolve() throws for
/// the case itself.
Minimum minimize(const CaseSpec& spec, const catalogue::Catalogue& catalogue, const Runner& run,
                 const MinimizeOptions& options);

/// Same outcome, class and phase, wrong bytes in both or neither; same signal for a crash, same text for a refusal.
bool same_failure(const CaseResult& a, const CaseResult& b);

/// "layers", "blocks", ... of a case, and the bytes of its memories.
Sizes sizes_of(const ResolvedCase& resolved);
/// "8 blocks -> 1, 3 layers -> 1": what shrank.
std::string to_string(const Sizes& before, const Sizes& after);

}  // namespace kvcts::minimize
