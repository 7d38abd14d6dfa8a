// What every report shows about a run, computed once: the headline, the figures, and cases grouped by cause.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "cli/report/repro.hpp"
#include "run/store/reader.hpp"

namespace kvcts::report {

/// Which list of the report a case belongs to. One place decides (section_of).
enum class Section : std::uint8_t {
  failed,       ///< not as expected; an expired waiver; planned and absent
  suite_error,  ///< the suite's own fault
  xpassed,      ///< passed although a waiver says that it fails
  waived,       ///< failed as a waiver says
  skipped,      ///< this machine lacks something
  not_run,      ///< budget, interruption, or declared so
  unsupported,  ///< declared by a constraint, and as expected
  fine,         ///< as expected
};
inline constexpr int section_count = 8;
Section section_of(const store::Row& row);

/// Cases of one section that ended in the same way: same outcome, class, phase, kind of finding and expectation; what did
/// not run for one reason; or, whatever the class, what one rule of pieces explains, if that holds for more of them.
struct Cause {
  std::string title;    ///< "FAIL axis-permuted at compare"
  std::string message;  ///< of the first case; behind "e.g. " where the cases differ in it
  bool differs{false};
  std::string check;  ///< what to do or to look at; "" = nothing known
  std::string note;   ///< "expected REFUSED", "waiver mooncake-lbhnc"; "" = nothing to add
  std::int64_t count{0};
  RepeatOptions again;              ///< of the first case: how to see it again
  std::vector<std::string> ids;     ///< the first id_limit, in plan order
  std::vector<store::Row> samples;  ///< the first sample_limit, whole
  static constexpr std::size_t id_limit = 200, sample_limit = 3;
};

struct Slow {
  std::string id;
  std::int64_t wall_ns{0};
};

struct RunView {
  store::RunInfo info;
  Repro repro;  ///< of any of its cases
  std::vector<store::Session> sessions;
  store::Counts counts;
  int exit_status{0};
  std::int64_t here{0}, here_executions{0};              ///< of those that counts calls modelled: ran_here()
  std::string headline;                                  ///< the verdict in one line
  bool incomplete{false};                                ///< something planned was not run
  std::array<std::vector<Cause>, section_count> causes;  ///< most cases first; Section::fine stays empty
  std::vector<Slow> slowest;                             ///< the five longest executions
  std::map<std::string, std::string> engines;            ///< that ran: version, and what it claims of itself
  std::int64_t busy_ms{0};                               ///< sum of all sessions

  const std::vector<Cause>& of(Section section) const { return causes[static_cast<std::size_t>(section)]; }
  /// Evidence, best first, for people.
  struct Kind {
    std::string_view name;   ///< "executed"
    std::string_view where;  ///< " on this CPU", or ""
    std::int64_t ids, executions;
    std::string_view words;
  };
  std::vector<Kind> evidence() const;
  /// Number of the row's cause in its section, from 1; 0 = none.
  std::size_t cause_of(const store::Row& row) const;
  struct Group {
    std::int64_t rows{0};   ///< that may be in it
    std::size_t number{0};  ///< of the cause in its section; 0 = none is
  };
  std::unordered_map<std::string, Group> groups;  ///< by key, over all sections
};

/// Reads the run once.
RunView load(const store::RunReader& reader);

/// One line, e.g. "3 of 312 cases did not end as expected". `title` names the run.
std::string headline(const store::Counts& counts);

}  // namespace kvcts::report
