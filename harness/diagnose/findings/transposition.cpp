#include <algorithm>
#include <array>
#include <set>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

namespace {

/// Both coordinates within a block of slots. A token of another block: none.
std::optional<std::pair<std::int64_t, std::int64_t>> along(const Extent& extent, ContentAxis axis) {
  if (axis != ContentAxis::slot) return std::pair(extent.should.at[axis], extent.is.at[axis]);
  const std::int64_t slot = extent.should.at[ContentAxis::slot];
  if (slot == none) return std::nullopt;
  return std::pair(slot, slot + extent.is.at[ContentAxis::token] - extent.should.at[ContentAxis::token]);
}

bool elsewhere(const Extent& extent, ContentAxis a, ContentAxis b) {
  for (const ContentAxis axis : {ContentAxis::component, ContentAxis::request, ContentAxis::layer, ContentAxis::kv,
                                 ContentAxis::head, ContentAxis::channel})
    if (axis != a && axis != b && extent.should.at[axis] != extent.is.at[axis]) return true;
  return a != ContentAxis::slot && b != ContentAxis::slot &&
         extent.should.at[ContentAxis::token] != extent.is.at[ContentAxis::token];
}

bool predicted(const Extent& extent, ContentAxis a, ContentAxis b, std::int64_t extent_a, std::int64_t extent_b) {
  const auto x = along(extent, a), y = along(extent, b);
  if (!x || !y || elsewhere(extent, a, b)) return false;
  const std::int64_t flat = x->first * extent_b + y->first;
  return x->second == flat % extent_a && y->second == flat / extent_a;
}

}  // namespace

std::optional<Transposition> transposition_of(const std::vector<Extent>& extents, const std::vector<std::size_t>& some,
                                              const std::map<ContentAxis, std::int64_t>& sizes) {
  std::optional<Transposition> best;
  const auto size = [&](ContentAxis axis) {
    const auto found = sizes.find(axis);
    return found == sizes.end() ? std::int64_t{0} : found->second;
  };
  for (const ContentAxis a : {ContentAxis::layer, ContentAxis::kv, ContentAxis::slot, ContentAxis::head}) {
    for (const ContentAxis b : {ContentAxis::layer, ContentAxis::kv, ContentAxis::slot, ContentAxis::head}) {
      if (a == b || size(a) < 2 || size(b) < 2) continue;
      Transposition one{a, b, {}};
      for (const std::size_t i : some)
        if (predicted(extents[i], a, b, size(a), size(b))) one.extents.push_back(i);
      if (one.extents.size() * 2 >= some.size() && (!best || one.extents.size() > best->extents.size()))
        best = std::move(one);
    }
  }
  return best;
}

bool fills(const Transposition& turned, const std::vector<Extent>& extents, const std::vector<std::size_t>& all,
           const std::map<ContentAxis, std::int64_t>& sizes) {
  std::map<ContentAxis, std::set<std::int64_t>> scope;
  for (const ContentAxis axis :
       {ContentAxis::request, ContentAxis::component, ContentAxis::layer, ContentAxis::kv, ContentAxis::head})
    for (const std::size_t i : turned.extents) scope[axis].insert(extents[i].should.at[axis]);
  return std::ranges::all_of(all, [&](std::size_t i) {
    const Extent& extent = extents[i];
    const bool inside = extent.should.kind == ByteSource::Kind::element && std::ranges::all_of(scope, [&](const auto& one) {
                          const auto& [axis, values] = one;
                          return axis == turned.a || axis == turned.b || values.contains(extent.should.at[axis]);
                        });
    return !inside || (extent.is.kind == ByteSource::Kind::element && extent.is.byte == extent.should.byte &&
                       predicted(extent, turned.a, turned.b, sizes.at(turned.a), sizes.at(turned.b)));
  });
}

}  // namespace kvcts::findings
