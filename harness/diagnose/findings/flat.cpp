#include <algorithm>
#include <tuple>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

std::vector<FlatCopy> flats_of(const std::vector<Extent>& extents, std::vector<std::size_t> some) {
  // A byte in between may be right by the same copy.
  constexpr std::int64_t gap = 256;
  if (std::ranges::any_of(some, [&](std::size_t i) { return extents[i].from < 0 || extents[i].region < 0; })) return {};
  std::ranges::sort(some, {}, [&](std::size_t i) { return std::tuple(extents[i].region, extents[i].offset); });
  std::vector<FlatCopy> out;
  for (const std::size_t i : some) {
    const Extent& extent = extents[i];
    if (!out.empty()) {
      FlatCopy& last = out.back();
      const std::int64_t ahead = extent.offset - last.offset;
      if (last.region == extent.region && last.from == extent.from && extent.from_offset - last.from_offset == ahead &&
          ahead - last.length <= gap) {
        last.length = ahead + extent.bytes;
        last.bytes += extent.bytes;
        continue;
      }
    }
    out.push_back({extent.region, extent.from, extent.offset, extent.from_offset, extent.bytes, extent.bytes});
  }
  return out;
}

}  // namespace kvcts::findings
