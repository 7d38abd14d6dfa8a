#include "case/tries.hpp"

#include <algorithm>
#include <cmath>

namespace kvcts {

Rate wilson(std::int64_t failed, std::int64_t made) {
  if (made <= 0) return {};
  constexpr double z = 1.959963984540054;  // 97.5 % of the normal distribution
  const auto n = static_cast<double>(made);
  const double p = static_cast<double>(failed) / n, spread = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n)),
               scale = 1 + z * z / n;
  const double middle = p + z * z / (2 * n);
  return {failed == 0 ? 0 : std::max(0.0, (middle - spread) / scale),
          failed == made ? 1 : std::min(1.0, (middle + spread) / scale)};
}

Rate rate_of(const Tries& tries) {
  return tries.retries > 0 ? wilson(tries.failed - 1, tries.retries) : wilson(tries.failed, tries.made);
}

std::int64_t tries_to_see(const Tries& tries) {
  if (tries.made == 0 || tries.failed == tries.made || tries.failed == 0) return 1;
  const double rate = static_cast<double>(tries.failed) / static_cast<double>(tries.made);
  return std::clamp<std::int64_t>(std::llround(std::ceil(std::log(0.05) / std::log1p(-rate))), 1, 1000);
}

}  // namespace kvcts
