// What code could take the memories of a case with two sides for: what was claimed of them, and the other side's layout.
#pragma once

#include <string>
#include <vector>

#include "case/case.hpp"
#include "diagnose/explain.hpp"

namespace kvcts::diagnose {

/// Of all memories of group 0 that lower() names; each differs from the truth.
std::vector<scenario::Claim> claims_of(const ResolvedCase& resolved);

/// Of an order of axes, "KBNHC", taken for another one. K and V inside of the blocks in one of them only, or in allocations
/// of their own: the more telling difference.
FaultClass class_of_order(const std::string& is, const std::string& reported);

}  // namespace kvcts::diagnose
