// The terms of the field and of the suite that outputs and pages use, each in a sentence or two: `kvcts explain TERM`.
#pragma once

#include <vector>

#include "cli/words.hpp"

namespace kvcts::cli {

/// Kind "term". In groups that belong together: the cache, moving it, cases, checking, runs, code under test.
const std::vector<Word>& glossary();

}  // namespace kvcts::cli
