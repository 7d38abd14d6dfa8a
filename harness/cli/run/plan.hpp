// From a selection to a plan: every case with its digests, its expected outcomes, and whether it is run at all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/resolve.hpp"
#include "catalogue/catalogue.hpp"
#include "cli/availability.hpp"
#include "matrix/select.hpp"
#include "matrix/waivers.hpp"
#include "store/run.hpp"

namespace kvcts::cli {

/// One case of a run. Those that are not run have their result already.
struct Item {
  std::size_t selected{0};             ///< index into the selection
  store::PlannedCase planned;
  std::optional<CaseResult> decided;   ///< UNSUPPORTED, NOT_RUN (budget), SKIPPED, ERROR (cannot be resolved)
};

struct PlanOptions {
  std::optional<std::uint64_t> seed;   ///< replaces that of every case
  std::vector<std::string> require;    ///< what must not be SKIPPED
};

class Plan {
 public:
  Plan(const catalogue::Catalogue& catalogue, const matrix::Query& query, const PlanOptions& options);

  const matrix::Selection& selection() const { return selection_; }
  const std::vector<Item>& items() const { return items_; }
  /// The case as it is run. Throws as kvcts::resolve.
  ResolvedCase resolve(std::size_t item) const;
  /// Verdict and waiver of a result, put into it. A case that is skipped because the run set its engine aside is unexpected: nobody knows
  /// how it would have ended.
  void judge(CaseResult& result, const std::vector<Expected>& expected);

 private:
  Item make_item(std::size_t i, const PlanOptions& options, Availability& availability);

  const catalogue::Catalogue& catalogue_;
  matrix::Selection selection_;
  std::optional<std::uint64_t> seed_;
  bool from_files_{false};             ///< the user named case files: what is wrong in them is a usage error
  matrix::Space space_;
  matrix::Waivers waivers_;
  std::string today_;
  std::vector<Item> items_;
};

}  // namespace kvcts::cli
