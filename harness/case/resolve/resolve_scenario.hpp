// Works out the planes of every view in a case's scenario, and checks whatever can be checked without running it.
#pragma once

#include "case/catalogue/catalogue.hpp"
#include "case/scenario.hpp"
#include "case/spec.hpp"

namespace kvcts {

/// Throws std::runtime_error with the name of the memory or step: a layout that does not exist or fit, block ids outside the
/// pool or too few of them (as intended), codes of different widths at the ends of a move, a range without an allocation.
scenario::Scenario resolve_scenario(const CaseSpec& spec, const catalogue::Catalogue& catalogue);

}  // namespace kvcts
