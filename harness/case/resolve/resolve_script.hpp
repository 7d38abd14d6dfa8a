// The script of a case with every view's planes worked out, and checked for what can be said without running it.
#pragma once

#include "case/catalogue/catalogue.hpp"
#include "case/script.hpp"
#include "case/spec.hpp"

namespace kvcts {

/// Throws std::runtime_error with the name of the memory or step: a layout that does not exist or does not fit, block ids
/// outside of the pool or too few of them (in what was intended), codes of different widths at the ends of a move, a range
/// without an allocation.
script::Script resolve_script(const CaseSpec& spec, const catalogue::Catalogue& catalogue);

}  // namespace kvcts
