// Points of a suite's matrix block: the product of its axes, less `where`, each with the constraint that stops it, if any.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "matrix/constraints.hpp"

namespace kvcts::matrix {

/// A matrix block with its names resolved. Axes that it does not name take their default.
struct EnumerationBlock {
  std::string title;
  std::array<std::vector<std::uint16_t>, axis_count> values;
  std::optional<Expression> where;
  int cover{0};
  std::int64_t sample{0};
  std::int64_t product() const;  ///< points of the plain product, before `where`; saturates
};

/// Throws Error "file: matrix block n: ..." on an unknown axis, value or glob, or a bad expression.
EnumerationBlock resolve_block(Space& space, const catalogue::MatrixBlock& block, const std::string& where_from);

/// Calls `visit(point, constraint)` for every point of the product that `where` keeps: canonical, in axis order, last axis
/// fastest; constraint as in Constraints::check. A block whose values overlap through "same" may yield a point twice.
void each_point(const Space& space, Constraints& constraints, const EnumerationBlock& block,
                const std::function<void(const Point&, int constraint)>& visit);

/// Calls `visit(block, point)` for random free points of the blocks' products, canonical, taking blocks in turn, until it
/// has returned `n` times that the point is new. A block that long yields nothing new drops out, so there may be fewer
/// points.
void draw_points(const Space& space, Constraints& constraints, const std::vector<EnumerationBlock>& blocks,
                 std::uint64_t seed, std::int64_t n, const std::function<bool(std::size_t block, const Point&)>& visit);

inline constexpr std::int64_t max_product = 40'000'000;
inline constexpr std::int64_t max_draw = 10'000'000;

}  // namespace kvcts::matrix
