// Two runs side by side: new, fixed, vanished, slower.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/report/pace.hpp"
#include "cli/report/view.hpp"

namespace kvcts::report {

/// In the order in which a person looks at them.
enum class Change : std::uint8_t {
  newly_failing,   ///< fails, and did not; a new case that fails, too
  newly_flaky,     ///< fails in some tries, and did not fail
  other_cause,     ///< fails as before, but ends otherwise
  newly_skipped,   ///< ran before; now skipped, not run, or unsupported
  vanished,        ///< planned before, and no longer
  other_evidence,  ///< as before, but shown by another kind of evidence
  flaky_passed,    ///< was flaky and passed, in too few tries to say that it is fixed
  fixed,           ///< failed, and no longer; of a flaky case: in so many tries that chance explains it with less than 5 %
  added,           ///< a new case that does not fail
  renamed,         ///< the same data under another id, with the same end
};
inline constexpr int change_count = 10;
std::string_view name(Change change);  ///< "newly failing", ...

/// How a case stood in a run.
struct Standing {
  std::string ending;  ///< "FAIL axis-permuted at compare"
  std::string verdict, evidence;
  FaultClass fault_class{};
  std::string message;
  Tries tries;
  std::string kind{};  ///< of its findings: kind_of()
};

struct Changed {
  Change change{};
  std::string id;
  std::string id_before;  ///< of a renamed case; else ""
  std::optional<Standing> before, after;
};

/// One value of an axis that stands for another: `kvcts compare --map engine=nixl-1.2-cma:nixl-cma`.
struct Mapping {
  std::string axis, before, after;
  std::int64_t cases{0};  ///< of the earlier run that have it, and their like in the later one
  bool found{false};      ///< not given: seen, because all cases of the one value are gone and those of the other are new
};
/// "engine=nixl-1.2-cma:nixl-cma". Throws catalogue::Error when it is not of this form, or there is no such axis.
Mapping mapping_from_text(std::string_view text);

struct Comparison {
  store::RunInfo before, after;
  std::vector<Changed> changes;  ///< by kind, then in the order of the later plan
  std::vector<Slower> slower;
  std::vector<Mapping> mapped;
  std::vector<store::Difference> differs;  ///< of the runs, and of the engines and connectors that ran
  std::int64_t alike{0};                   ///< cases that end as before
  std::int64_t still_failing{0};           ///< of them
  std::int64_t only_one{0};                ///< cases of one run only, because --budget left them out of the other: no change
  std::int64_t lost{0};                    ///< newly skipped or not run, which no suite lists as optional
  double pace{1};                          ///< median ratio of times of all cases that passed in both
  double pace_of_suite{1};                 ///< of the suite's own work in them, which tells how busy the machine was
  std::int64_t of(Change change) const;
};

/// Compares what both runs have; what only one has is added or vanished, whatever its suite. A case of the earlier run with
/// a mapped value is compared with its like. Throws store::Error when no case is in both runs, and as RunReader does.
Comparison compare(const store::RunReader& before, const store::RunReader& after, std::vector<Mapping> mapped = {});

/// "nixl_cu12 1.2.0 -> 1.5.1, commit a -> none, ... and 2 more"; "" of none.
std::string difference_text(const std::vector<store::Difference>& all);

/// A block per kind, failures grouped by cause; the last line says how many of each.
void print_comparison(std::ostream& out, const Comparison& comparison, const Repro& repro);
/// The same as a section of the later run's page; ids lead to their cases.
std::string comparison_markup(const Comparison& comparison);
/// {format, version, before, after, differences, mapped, counts, lost, changes, slower}
nlohmann::json to_json(const Comparison& comparison);

}  // namespace kvcts::report
