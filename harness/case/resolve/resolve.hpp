// CaseSpec + catalogue -> ResolvedCase: fills in every default, looks up every name, computes every number.
#pragma once

#include "case/case.hpp"
#include "case/catalogue/catalogue.hpp"
#include "case/spec.hpp"

namespace kvcts {

/// Throws std::runtime_error (catalogue::Error, layout::Error): one sentence with what was expected, found, and what to do.
ResolvedCase resolve(const CaseSpec& spec, const catalogue::Catalogue& catalogue);

}  // namespace kvcts
