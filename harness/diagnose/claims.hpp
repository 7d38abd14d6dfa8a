// What code could take the memories of a case with two sides for: what was claimed of them, and the other side's layout.
#pragma once

#include <vector>

#include "case/case.hpp"
#include "diagnose/explain.hpp"

namespace kvcts::diagnose {

/// Of all memories of group 0 that lower() names; each differs from the truth.
std::vector<script::Claim> claims_of(const ResolvedCase& resolved);

}  // namespace kvcts::diagnose
