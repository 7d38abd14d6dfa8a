// Selects cases: suites (or random points of their matrix), id globs, an axis expression, what failed in a run, a cover, a
// shard and a budget. Each step narrows the one before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "matrix/cover.hpp"

namespace kvcts::matrix {

/// What failed in a run.
struct Failed {
  std::string run;               ///< its folder; "" = none, and no case is left out for it
  std::vector<std::string> ids;  ///< those of its cases that failed
  bool anywhere{false};          ///< also those that no suite and no file of the query holds: they must exist
};

/// The cases of one shard, as parts_of() found them.
struct Part {
  struct Case {
    std::int64_t place;  ///< among the cases of all shards
    std::string suite, id;
  };
  std::int64_t whole{0};  ///< 0: there is no such list
  std::uint64_t cut{0};
  std::vector<Case> cases;
};

using Times = std::map<std::string, std::int64_t>;  ///< ns, by id

struct Query {
  std::vector<std::string> suites;  ///< empty: fully written ids are found anywhere; else "smoke", or "full" when there is
                                    ///< an id glob or an expression
  std::vector<std::string> ids;     ///< ids or globs; a case is selected when any matches. "name#*" selects controls
  std::string where;                ///< axis expression
  std::int64_t draw{0};             ///< n > 0: instead of the suites' cases, n random points of their matrix blocks'
                                    ///< products that `where` keeps and no constraint stops
  std::uint64_t draw_seed{1};       ///< the first n points of a seed are the same for every larger draw
  Failed failed;                    ///< keep only these
  int cover{0};                     ///< t: keep a cover of strength t (and every hand-written case)
  int shard{1}, shards{1};          ///< i of n, 1-based, by the hash of the id without its arch
  Times times_ns;                   ///< that cases took: shards are cut so that each takes as long
  Part part;           ///< of this shard, already selected: nothing but the budget narrows it, and nothing is enumerated
  double budget_s{0};  ///< > 0: only as many of the first cases as fit into that many estimated seconds
  std::vector<std::filesystem::path> files;  ///< case files beside (or instead of) suites
};

/// Cases that share no shard with others, by index, and how many shards they are cut into.
struct SelectionGroup {
  std::vector<std::size_t> cases;
  int shards{1};
};

/// The cases of a query, in order. Builds ids, specs and facts on demand, so a million cases cost little.
class Selection {
 public:
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  /// Why nothing was selected: how many cases there were and which step removed the last. "" when something was.
  const std::string& why_empty() const;
  /// Cases of the suites, before ids, expression, cover and shard.
  std::int64_t considered() const;
  /// Set when the query requests a cover; a suite's own covers are in suite_covers().
  const CoverReport& cover() const;
  const std::vector<std::pair<std::string, CoverReport>>& suite_covers() const;  ///< "suite: block title", report

  std::string id(std::size_t i) const;
  const std::string& suite(std::size_t i) const;  ///< first suite that holds it; "" = none
  /// In a shard: the index of each of its cases among those of all shards; else empty.
  const std::vector<std::int64_t>& places() const;
  /// Number of cases of all shards together; 0 without shards.
  std::int64_t whole() const;
  /// Digest of which case is in which shard, where measured times decide that; else 0.
  std::uint64_t cut() const;
  /// Cases that the budget left out.
  std::int64_t left_out() const;
  /// Does the suite that declares the case accept that the machine lacks one of these?
  bool optional(std::size_t i, const std::vector<std::string>& lacking) const;
  /// UNSUPPORTED: list it, do not run it. REFUSED: run it, spec() expects a refusal.
  std::optional<Declared> declared(std::size_t i) const;
  /// Complete, as a hand-written case would be; `expected` and the suite's deadlines included.
  CaseSpec spec(std::size_t i) const;
  /// {"axes": {axis: value}, "suite": ..., "links": [...], "title": ...}: for ResolvedCase::facts, filters and reports.
  nlohmann::json facts(std::size_t i) const;
  double seconds(std::size_t i) const;  ///< estimate

  struct State;
  explicit Selection(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const Space& space() const;

 private:
  friend std::vector<Part> parts_of(const Selection& whole, const std::vector<SelectionGroup>& groups,
                                    const Times& times_ns);
  std::shared_ptr<const State> state_;
};

/// Throws Error on an unknown suite, id, axis, value or fact, on a bad file, and on a shard or budget out of range. An empty
/// result is not an error here. The catalogue must outlive the selection.
Selection select(const Catalogue& catalogue, const Query& query);

/// The parts of a whole selection, those of the first group first. Of one group with all cases each part is what select()
/// takes for that shard.
std::vector<Part> parts_of(const Selection& whole, const std::vector<SelectionGroup>& groups, const Times& times_ns);

/// Axis values of a case, as expressions and facts()["axes"] see them: matrix points by their axes, hand-written cases as
/// far as they have them, with geometry values that the case replaces as "geometry.heads".
nlohmann::json axes_of(const Space& space, const Point& point);
nlohmann::json axes_of(const CaseSpec& spec);
/// Values for an expression from such an object.
Lookup lookup_of(Space& space, const nlohmann::json& axes);

}  // namespace kvcts::matrix
