// A list of steps: read, written, patched.
#pragma once

#include <vector>

#include "case/catalogue/fields.hpp"
#include "case/script.hpp"

namespace kvcts::catalogue {

Codec<std::vector<script::Step>> steps_codec();

}  // namespace kvcts::catalogue
