// The museum: published faults, each expressed by a case (cases/museum/*.yaml) or given up, with a reason in the same
// files:
//
//   # not expressed: M118 ai-dynamo/dynamo#5068: the cause was never isolated
//
// cases/museum/index lists them. Every entry is expressed or given up, never both: read() enforces that.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "case/spec.hpp"

namespace kvcts::museum {

/// One published fault.
struct Exhibit {
  catalogue::ExhibitEntry entry;
  std::vector<CaseSpec> cases;     ///< that express it; usually one
  std::vector<CaseSpec> controls;  ///< of those
  std::string not_expressed;       ///< why there is no case; "" if there is one
  bool expressed() const { return !cases.empty(); }
  std::string link() const;  ///< where it was reported
};

/// A line "# not expressed: ID REPORT: REASON" of a file.
struct GivenUp {
  std::string id, report, reason;
  std::string where;  ///< "cases/museum/vllm-1.yaml:928"
};
/// The given-up entries of one text; errors call it `shown`. Throws catalogue::Error for a malformed line of this
/// kind.
std::vector<GivenUp> given_up(std::string_view text, const std::string& shown);

/// "M118" of "museum/m118-dynamo-5068#intended". Throws catalogue::Error for other ids.
std::string entry_of(const std::string& case_id);

/// All exhibits in the order of the index. Throws catalogue::Error unless every entry has cases or one line that
/// gives it up, and each case links the report, expects the entry's class, is scripted step by step, and has a
/// control.
std::vector<Exhibit> read(const catalogue::Catalogue& catalogue);

/// How a case ended.
struct Ending {
  Outcome outcome{Outcome::not_run};
  FaultClass fault_class{};
  std::string message;
};
using Endings = std::map<std::string, Ending>;  ///< by case id

/// Runs them in this process without workers, on one thread per processor. What cannot run is an ERROR.
Endings run(const std::vector<Exhibit>& exhibits, const catalogue::Catalogue& catalogue);

/// How an exhibit fared. Caught: none of its cases passed. Named: also in the entry's class.
struct Standing {
  bool ran{false}, caught{false}, named{false};
  std::int64_t controls{0}, controls_good{0};
  std::string ending;  ///< "FAIL axis-permuted", "not expressed"
};
Standing judge(const Exhibit& exhibit, const Endings& endings);

/// Totals, separate for entries with confirmed data and the others.
struct Tally {
  struct Part {
    std::int64_t entries{0}, expressed{0}, ran{0}, caught{0}, named{0};
  };
  Part confirmed, partial;
  std::int64_t controls{0}, controls_good{0};
};
Tally tally(const std::vector<Exhibit>& exhibits, const Endings& endings);

/// The museum's targets.
inline constexpr std::int64_t least_expressed = 170;  ///< entries with confirmed data
inline constexpr double least_named = 0.95;           ///< share of the expressed ones
/// One sentence per missed target. `whole`: all entries are included, so their number counts too.
std::vector<std::string> missed(const Tally& tally, bool whole);
/// "expressed   183 of 183 confirmed, ...": four lines.
std::string summary(const Tally& tally);

}  // namespace kvcts::museum
