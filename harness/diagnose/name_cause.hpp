// One answer for the bytes of a case with two sides: what is seen at once, else what the search over its steps finds.
#pragma once

#include "diagnose/at_sight.hpp"
#include "diagnose/region_extents.hpp"

namespace kvcts::diagnose {

/// `extents`: of the same bytes, searched; null: there are too many. Without `search` what is not seen at once has no text.
/// `trace`: receives what was tried (scenario::Explanation).
Diagnosis name_the_cause(const CaseBytes& bytes, const RegionExtents* extents, bool search = true,
                         std::string* trace = nullptr);
/// Of a transfer that ended early: the state of its data explains nothing.
Diagnosis name_the_end(const CaseBytes& bytes);

}  // namespace kvcts::diagnose
