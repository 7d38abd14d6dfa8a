// kvcts run --hosts A,B,C,... --pairs all|find: the selection over pairs of many hosts.
//
//   this process   plans pairs (group_testing.hpp), starts and watches them, writes OUT/index.html and OUT/pairs.json
//   each pair      kvcts run --hosts A,B --out OUT/A+B SELECTION: a run with a store and a page of its own. What it prints
//                  is in OUT/A+B.log. A pair that `find` runs again is OUT/A+B.2
//
// A host takes part in one pair at a time; pairs of different hosts run at once. Each pair runs in one direction: the host
// that --hosts names first is the producer.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/hosts/group_testing.hpp"
#include "cli/run/run.hpp"
#include "run/store/counts.hpp"

namespace kvcts::cli::hosts {

/// One run over one pair that has ended.
struct PairRun {
  Link pair;
  int round{0};                         ///< from 1
  std::string name;                     ///< "A+B", "A+B.2": below OUT
  int exit{0};                          ///< exit_code()
  std::optional<store::Counts> counts;  ///< nothing: it left no run
  std::string words;                    ///< its headline, or the last line of its log

  /// What --pairs find counts as a failure: cases that did not end as expected, or a run in which none ran.
  bool failed() const;
};

/// The runs of one call, in the order in which they ended, and what they say.
struct Pairs {
  std::vector<std::string> hosts;  ///< names
  std::vector<std::string> given;  ///< as --hosts has them: NAME or NAME=ADDRESS
  std::filesystem::path out;
  std::vector<std::string> selection;  ///< words of a pair's call behind its --hosts and --out
  std::optional<PairVerdict> found;    ///< of --pairs find
  int rounds{0};
  std::vector<PairRun> runs;
  bool over{false};

  std::string name(const Link& pair) const;
  /// The call of one pair, to copy.
  std::string command(const Link& pair) const;
  int failures() const;
  /// The worst Exit of all pairs; not 0 where something was found.
  int exit_status() const;
  /// One sentence: what was found, or how many pairs failed.
  std::string headline() const;
  /// What to do next; "" where nothing failed.
  std::string next_step() const;
  /// The pair that next_step() is about.
  std::optional<Link> suspect() const;
};

nlohmann::json to_json(const Pairs& pairs);
/// OUT/index.html and OUT/pairs.json, each whole or as before.
void write_pages(const Pairs& pairs);

/// Runs all pairs, or those that find one bad host or link (`how`: "all", "find"). Returns an Exit. Throws UsageError: fewer
/// than two hosts, one named twice, no --out, or a selection that no pair accepts.
int run_pairs(const RunOptions& run, const std::string& how);

}  // namespace kvcts::cli::hosts
