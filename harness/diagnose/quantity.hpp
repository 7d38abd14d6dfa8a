// What code compares when it stops names the class.
#pragma once

#include <string>

#include "case/outcome.hpp"

namespace kvcts::scenario {

/// Of the words of `about` in case/catalogue/case_reference.md; none: another quantity.
FaultClass class_of_quantity(const std::string& about);

}  // namespace kvcts::scenario
