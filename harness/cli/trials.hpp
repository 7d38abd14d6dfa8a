// Cases that a verb runs for itself, without a store: in order, until one of them is what it looks for.
#pragma once

#include <functional>
#include <vector>

#include "case/case.hpp"
#include "case/result.hpp"

namespace kvcts::cli {

/// Runs `cases` through the supervisor on `jobs` lanes. The results up to and with the first for which `enough` is true, in order; later
/// cases may have run by then and are left out, so that what comes back does not depend on time. Throws Interrupted.
std::vector<CaseResult> run_until(const std::vector<ResolvedCase>& cases, int jobs, const std::function<bool(const CaseResult&)>& enough);

struct Interrupted {};

}  // namespace kvcts::cli
