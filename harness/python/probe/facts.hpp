// What happened to the rows of a live tensor, in words. Internal to verify().
#pragma once

#include <vector>

#include "python/probe/damage.hpp"

namespace kvcts::probe {

/// Every row of data of the named blocks, by whose row it holds; empty for codes of 4 bits, and if there are too
/// many rows. Of the blocks that are right only some stand beside the others.
std::vector<Finding> what_happened(const Question& question, const Damage& damage);

}  // namespace kvcts::probe
