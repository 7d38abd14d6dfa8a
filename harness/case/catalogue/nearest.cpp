#include "case/catalogue/nearest.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace kvcts::catalogue {

namespace {

// Optimal string alignment distance; names are short, so a full table is fine.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates) {
  if (wrong.size() > 64) return "";
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const auto& candidate : candidates) {
    if (candidate.size() > 64) continue;
    const std::size_t d = distance(wrong, candidate);
    if (d < best_distance) best_distance = d, best = candidate;
  }
  // Beyond a third of the letters a suggestion is noise.
  return best_distance <= std::max<std::size_t>(2, std::min(wrong.size(), best.size()) / 3) ? best : "";
}

std::string suggestion(std::string_view wrong, const std::vector<std::string>& candidates) {
  if (const std::string near = nearest(wrong, candidates); !near.empty()) return "; did you mean '" + near + "'?";
  if (candidates.empty()) return "; none is known";
  std::string out = "; known: ";
  constexpr std::size_t shown = 12;
  for (std::size_t i = 0; i < std::min(shown, candidates.size()); ++i) out += (i ? ", " : "") + candidates[i];
  if (candidates.size() > shown) out += ", ... (" + std::to_string(candidates.size()) + " in all)";
  return out;
}

}  // namespace kvcts::catalogue
