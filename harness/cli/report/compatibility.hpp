// Which caches work together: the cases of a run by producer, consumer, dtype and engine, as a page for a release.
#pragma once

#include <array>
#include <map>
#include <ostream>
#include <string>
#include <tuple>

#include "run/store/reader.hpp"

namespace kvcts::report {

struct Compatibility {
  /// Cases of one producer, consumer, dtype and engine; they differ in geometry, block sizes, ranks, arch and the like.
  struct Cell {
    std::array<std::int64_t, outcome_count> outcome{};
    std::array<std::int64_t, evidence_count> evidence{};  ///< of cases that ran
    std::int64_t unexpected{0};
  };
  using Key = std::tuple<std::string, std::string, std::string, std::string>;  ///< engine, producer, consumer, dtype
  std::map<Key, Cell> cells;
  std::int64_t cases{0};
  std::int64_t written_by_hand{0};  ///< not counted: they lie about layouts on purpose
  std::string suite, selection, version, started, headline;
};

/// Reads the run once. Counts cases of the matrix ("kv/..."), by the axis values of their ids.
Compatibility compatibility(const store::RunReader& reader);

/// "PASS 3 m", "PASS 2, FAIL 1! m": outcomes with counts, worst last; "!" = not as expected; e, c, m = evidence of those
/// that ran.
std::string cell_text(const Compatibility::Cell& cell);

void write_markdown(const Compatibility& table, std::ostream& out);

}  // namespace kvcts::report
