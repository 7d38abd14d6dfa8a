#include <algorithm>
#include <tuple>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

std::vector<Flat> flats_of(const std::vector<Fact>& facts, std::vector<std::size_t> some) {
  // A byte in between may be right by the same copy.
  constexpr std::int64_t gap = 256;
  if (std::any_of(some.begin(), some.end(), [&](std::size_t i) { return facts[i].from < 0 || facts[i].region < 0; }))
    return {};
  std::ranges::sort(some, {}, [&](std::size_t i) { return std::tuple(facts[i].region, facts[i].offset); });
  std::vector<Flat> out;
  for (const std::size_t i : some) {
    const Fact& fact = facts[i];
    if (!out.empty()) {
      Flat& last = out.back();
      const std::int64_t ahead = fact.offset - last.offset;
      if (last.region == fact.region && last.from == fact.from && fact.from_offset - last.from_offset == ahead &&
          ahead - last.length <= gap) {
        last.length = ahead + fact.bytes;
        last.bytes += fact.bytes;
        continue;
      }
    }
    out.push_back({fact.region, fact.from, fact.offset, fact.from_offset, fact.bytes, fact.bytes});
  }
  return out;
}

}  // namespace kvcts::findings
