// t-way covers: few points in which every combination of t axis values that can run at all occurs. Deterministic.
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
  std::int64_t tuples{0};     ///< that can run; all are covered
  std::int64_t undecided{0};  ///< given up on (search limit); counted neither as covered nor as excluded
  struct Excluded {
    Tuple tuple;
    std::string constraint;  ///< one that stops it
  };
  std::vector<Excluded> excluded;  ///< tuples of the axes' values that constraints make impossible, in order
};

/// A covering array of strength t over a block's values, built row by row without making the product (of any size).
std::vector<Point> covering_array(const Space& space, Constraints& constraints, const Block& block, int strength,
                                  CoverReport& report);

/// Indices, ascending, of a subset of `points` that holds every tuple which any of the free ones (constraint[i] == 0) holds.
std::vector<std::size_t> covering_subset(const Space& space, const Constraints& constraints,
                                         const std::vector<Point>& points, const std::vector<int>& constraint, int strength,
                                         CoverReport& report);

}  // namespace kvcts::matrix
