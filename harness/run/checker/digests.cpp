#include "run/checker/digests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/generate.hpp"
#include "run/checker/content.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

void DigestFold::fold(Sides& into, Side side, std::uint64_t file) {
  std::uint64_t& at = into[side == Side::producer ? 0 : 1];
  std::array<std::uint8_t, 16> both{};
  for (std::size_t i = 0; i < 8; ++i) {
    both[i] = static_cast<std::uint8_t>(at >> (8 * i));
    both[8 + i] = static_cast<std::uint8_t>(file >> (8 * i));
  }
  at = kernels::digest(both);
}

Digests DigestFold::whole() const {
  const auto digits = [](std::uint64_t value) { return fmt::format("{:016x}", value); };
  return {{digits(before_[0]), digits(after_[0])}, {digits(before_[1]), digits(after_[1])}};
}

Digests expected_digests(const ResolvedCase& resolved, bool transferred) {
  const auto content = make_content(resolved);
  DigestFold fold;
  std::vector<std::uint8_t> file;
  for (int pass = 0; pass < (transferred ? std::max(1, resolved.passes) : 1); ++pass) {
    for (const Side side : {Side::producer, Side::consumer}) {
      for (const RegionRef& region : regions(resolved, side)) {
        file.resize(static_cast<std::size_t>(oracle::file_shape(resolved, region.bytes).size));
        content->write_initial(region, pass, file);
        const std::uint64_t before = kernels::digest(file);
        fold.before(side, before);
        // The source must not change: its expected content is not regenerated.
        if (!transferred || side == Side::producer) {
          fold.after(side, before);
          continue;
        }
        content->write_expected(region, pass, file);
        fold.after(side, kernels::digest(file));
      }
    }
  }
  return fold.whole();
}

}  // namespace kvcts::checker
