// Do two planes share a bit? Internal to the layout library.
#pragma once

#include <cstdint>
#include <optional>

#include "layout/layout.hpp"

namespace kvcts::layout {

/// Lowest bit shared by an element of `a` and an element of `b` in one allocation; nullopt when there is none.
std::optional<std::int64_t> first_shared_bit(const Plane& a, const Plane& b);
/// Lowest bit that two different elements of the plane share.
std::optional<std::int64_t> first_doubled_bit(const Plane& plane);

}  // namespace kvcts::layout
