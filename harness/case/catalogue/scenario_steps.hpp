// A list of steps: read, written, patched.
#pragma once

#include <vector>

#include "case/catalogue/fields.hpp"
#include "case/scenario.hpp"

namespace kvcts::catalogue {

Codec<std::vector<scenario::Step>> steps_codec();

}  // namespace kvcts::catalogue
