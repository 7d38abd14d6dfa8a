#include "diagnose/claims.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "diagnose/lowering.hpp"
#include "layout/layout.hpp"

namespace kvcts::diagnose {

using layout::Axis;

namespace {

/// Axes by falling stride: K and V may be planes of their own, in one allocation.
std::string letters(const layout::Cache& cache) {
  const layout::Plane& first = cache.planes.at(0);
  const std::string out = layout::order(first);
  const auto other = std::ranges::find_if(cache.planes, [&](const layout::Plane& p) {
    return p.allocation == first.allocation && p.component == first.component && p.modes == first.modes &&
           p.origin[Axis::kv] != first.origin[Axis::kv];
  });
  if (other == cache.planes.end() || out.find('K') != std::string::npos) return out;
  const auto step = std::abs(other->offset - first.offset);
  const auto larger = std::ranges::count_if(first.modes, [&](const auto& mode) { return std::abs(mode.stride) > step; });
  return out.substr(0, static_cast<std::size_t>(larger)) + "K" + out.substr(static_cast<std::size_t>(larger));
}

layout::Cache only(const layout::Cache& cache, bool data) {
  layout::Cache out = cache;
  std::erase_if(out.planes, [&](const auto& p) { return (p.component == layout::Component::data) != data; });
  return out;
}

/// Where all but the scales is right: another place, or an order within groups of tokens.
FaultClass class_of_scales(const layout::Cache& is, const layout::Cache& reported) {
  if (!layout::same_map(only(is, true), only(reported, true))) return FaultClass::none;
  const auto in_groups = [](const layout::Cache& cache) {  // an axis in two places
    return std::ranges::any_of(only(cache, false).planes, [](const auto& plane) {
      std::set<Axis> axes;
      return std::ranges::any_of(plane.modes, [&](const auto& mode) { return !axes.insert(mode.axis).second; });
    });
  };
  return in_groups(is) != in_groups(reported) ? FaultClass::scale_swizzle : FaultClass::scale_misplaced;
}

bool same_allocations(const layout::Cache& a, const layout::Cache& b) {
  return std::ranges::equal(a.allocations, b.allocations, {}, &layout::Allocation::bytes, &layout::Allocation::bytes);
}

class Claims {
 public:
  explicit Claims(const ResolvedCase& resolved) : case_(resolved), group_(resolved.groups.at(0)) {}

  std::vector<scenario::Claim> all() {
    as_the_other(Side::consumer);
    as_declared();
    as_the_other(Side::producer);
    return std::move(out_);
  }

 private:
  void as_declared() {
    scenario::Claim claim;
    for (const Side side : {Side::producer, Side::consumer}) {
      const SideCache& cache = side == Side::producer ? group_.producer : group_.consumer;
      const auto& rank = cache.ranks.at(0);
      if (rank.claim.planes.empty() || layout::same_map(rank.claim, rank.truth)) continue;
      for (std::size_t r = 0; r < cache.ranks.size(); ++r)
        claim.caches[memory_name(case_, side, 0, static_cast<int>(r))] = layout::to_text(cache.ranks[r].claim);
      const std::string is = letters(rank.truth), reported = letters(rank.claim);
      const FaultClass scales = class_of_scales(rank.truth, rank.claim);
      if (claim.fault_class == FaultClass::none)
        claim.fault_class = scales != FaultClass::none ? scales : class_of_order(is, reported);
      claim.words += claim.words.empty() ? "" : "; ";
      if (scales != FaultClass::none)
        claim.words += "the scales of the " + std::string(name(side)) + " do not lie where the claim has them";
      else
        claim.words += "the " + std::string(name(side)) + " is " + is + " and was taken for " +
                       (is == reported ? "one with other steps" : reported);
    }
    if (!claim.caches.empty()) out_.push_back(std::move(claim));
  }

  /// Whole blocks moved unchanged between layouts that differ.
  void as_the_other(Side side) {
    const SideCache &own = side == Side::consumer ? group_.consumer : group_.producer,
                    &other = side == Side::consumer ? group_.producer : group_.consumer;
    if (other.text.empty()) return;
    scenario::Claim claim;
    std::optional<layout::Cache> first;
    for (std::size_t r = 0; r < own.ranks.size(); ++r) {
      try {
        const auto cache = layout::instantiate(other.text, own.ranks[r].geometry, own.scheme);
        if (!same_allocations(cache, own.ranks[r].truth)) return;
        claim.caches[memory_name(case_, side, 0, static_cast<int>(r))] = layout::to_text(cache);
        if (!first) first = cache;
      } catch (const std::exception&) {
        return;  // there is no such order of this geometry
      }
    }
    if (layout::same_map(*first, own.ranks.front().truth)) return;
    const std::string is = letters(own.ranks.front().truth), reported = letters(*first);
    claim.fault_class = class_of_order(reported, is);
    claim.words = side == Side::consumer ? "blocks were moved as they are: written " + other.layout + " (" + reported +
                                               "), read as " + own.layout + " (" + is + ")"
                                         : "blocks were taken as they are: " + own.layout + " (" + is + ") read as " +
                                               other.layout + " (" + reported + ")";
    out_.push_back(std::move(claim));
  }

  const ResolvedCase& case_;
  const Group& group_;
  std::vector<scenario::Claim> out_;
};

}  // namespace

FaultClass class_of_order(const std::string& is, const std::string& reported) {
  const bool split = std::set<char>(is.begin(), is.end()).size() < is.size();  // an axis, in two places
  if (is == reported && !split) return FaultClass::wrong_stride;
  const auto inside = [](const std::string& order) {
    return order.find('K') != std::string::npos && order.find('K') > std::min(order.find('B'), order.size());
  };
  return inside(is) != inside(reported) ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted;
}

std::vector<scenario::Claim> claims_of(const ResolvedCase& resolved) {
  return resolved.groups.empty() ? std::vector<scenario::Claim>{} : Claims(resolved).all();
}

}  // namespace kvcts::diagnose
