// From a selection to a plan: every case with its digests, its expected outcomes, and whether it will run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "case/case.hpp"
#include "case/catalogue/catalogue.hpp"
#include "case/resolve/resolve.hpp"
#include "cli/availability.hpp"
#include "matrix/select.hpp"
#include "matrix/waivers.hpp"
#include "run/store/run.hpp"

namespace kvcts::cli {

/// What is done to a case before it is run.
using Change = std::function<void(ResolvedCase&)>;

/// One case of a run. Those that are not run have their result already.
struct Item {
  std::size_t selected{0};  ///< index into the selection
  store::PlannedCase planned;
  const Availability::Needs* needs{nullptr};  ///< what the machine must have for it; nullptr: not resolved
  Change change;                              ///< of an item that was inserted; else empty
  std::optional<CaseResult> decided;  ///< UNSUPPORTED, SKIPPED, how loading its plug-in failed, ERROR (cannot be resolved)
};

struct PlanOptions {
  std::optional<std::uint64_t> seed;  ///< replaces that of every case
  std::vector<std::string> require;   ///< cases that need one of these must run
};

class Plan {
 public:
  Plan(const catalogue::Catalogue& catalogue, const matrix::Query& query, const PlanOptions& options);

  const matrix::Selection& selection() const { return selection_; }
  const std::vector<Item>& items() const { return items_; }
  /// Leaves out items: what is not kept is no part of the plan. By item.
  void keep(const std::vector<bool>& kept);
  /// A case of the selection again, changed and under its own id, in front of item `at`. Throws as kvcts::resolve.
  void insert(std::size_t at, std::string id, std::size_t selected, Change change, Expected expected);
  /// Of a shard: where each item is among the cases of all shards; else empty.
  std::vector<std::int64_t> places() const;
  /// The case as it is run. Throws as kvcts::resolve.
  ResolvedCase resolve(std::size_t item) const;
  /// Verdict and waiver of a result, put into it. A case that did not run is unexpected where --require names what it needs,
  /// or where the run set its engine aside: its outcome is unknown. `facts` then say what is lacking, and
  /// whether the case's suite accepts that.
  void judge(CaseResult& result, const Item& item);
  /// Does --require name something that this case needs?
  bool required(const Item& item) const;

 private:
  Item make_item(std::size_t i, Availability& availability);
  const Availability::Needs* needs_of(const std::string& engine, const std::string& connector,
                                      const Availability& availability);

  const catalogue::Catalogue& catalogue_;
  matrix::Selection selection_;
  std::optional<std::uint64_t> seed_;
  std::vector<std::string> require_;
  std::map<std::pair<std::string, std::string>, Availability::Needs> needs_;  ///< by engine and connector
  bool by_id_{false};                                                         ///< the user wrote the id of each case
  bool from_files_{false};  ///< the user named case files: what is wrong in them is a usage error
  matrix::Space space_;
  matrix::Waivers waivers_;
  std::string today_;
  std::vector<Item> items_;
};

}  // namespace kvcts::cli
