// Cases that a verb runs itself, without a store: in order, until one is what it looks for.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "case/case.hpp"
#include "case/result.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {

/// Runs `cases` through the supervisor on `jobs` lanes. The results up to and with the first for which `enough` is true, in
/// order; later cases may have run by then and are left out, so that what comes back does not depend on time. `look`: bytes
/// that each result is to have as evidence. Throws supervisor::Interrupted.
std::vector<CaseResult> run_until(const std::vector<ResolvedCase>& cases, int jobs,
                                  const std::function<bool(const CaseResult&)>& enough,
                                  const std::optional<supervisor::Look>& look = std::nullopt);

}  // namespace kvcts::cli
