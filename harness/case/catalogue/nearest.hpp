// "did you mean": the known name closest to a wrong one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvcts::catalogue {

/// The candidate with the smallest edit distance (a transposition counts once), or "" when none is near.
std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates);
/// "; did you mean 'x'?" or, when nothing is near, "; known: a, b, c" (at most 12 names).
std::string suggestion(std::string_view wrong, const std::vector<std::string>& candidates);

}  // namespace kvcts::catalogue
