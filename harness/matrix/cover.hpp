// t-way covers: few points that contain every runnable combination of t axis values. Deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "matrix/enumerate.hpp"

namespace kvcts::matrix {

/// t values of t axes.
using Tuple = std::vector<std::pair<AxisId, std::uint16_t>>;
std::string to_text(const Space& space, const Tuple& tuple);

struct CoverReport {
  int strength{0};
  std::int64_t points{0};
  std::int64_t tuples{0};     ///< runnable ones; all are covered
  std::int64_t undecided{0};  ///< abandoned at the search limit; counted neither as covered nor as excluded
  struct Excluded {
    Tuple tuple;
    std::string constraint;  ///< one that excludes it
  };
  std::vector<Excluded> excluded;  ///< tuples of the axes' values that constraints make impossible, in order
};

/// A covering array of strength t over a block's values, built row by row, so the product may be of any size.
std::vector<Point> covering_array(const Space& space, Constraints& constraints, const EnumerationBlock& block, int strength,
                                  CoverReport& report);

/// Ascending indices of a subset of `points` that holds every tuple found in any free point (constraint[i] == 0).
std::vector<std::size_t> covering_subset(const Space& space, const Constraints& constraints,
                                         const std::vector<Point>& points, const std::vector<int>& constraint, int strength,
                                         CoverReport& report);

}  // namespace kvcts::matrix
