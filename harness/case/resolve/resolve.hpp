// CaseSpec + catalogue -> ResolvedCase: every default filled in, every name looked up, every number computed.
#pragma once

#include "case/case.hpp"
#include "case/catalogue/catalogue.hpp"
#include "case/spec.hpp"

namespace kvcts {

/// Throws std::runtime_error (catalogue::Error, layout::Error): one sentence with what was expected, found, and what to do.
ResolvedCase resolve(const CaseSpec& spec, const catalogue::Catalogue& catalogue);

}  // namespace kvcts
