// What arrived, as patches on the scenario that lower() makes of the case.
#include "diagnose/lowering.hpp"
#include "diagnose/region_extents.hpp"

namespace kvcts::diagnose {

using Kind = Provenance::Kind;
using View = std::span<const std::uint8_t>;

scenario::Patch RegionExtents::patch(const Region& region, const RegionExtent& one, scenario::BufferAddress at,
                                     const scenario::AddressSpace& space) const {
  using Is = scenario::Patch::Is;
  const auto address = [&](const RegionRef& r, std::int64_t offset) {
    scenario::BufferAddress out = space.address(place_name(case_, r));
    out.offset += offset;
    return out;
  };
  scenario::Patch out;
  out.at = at;
  out.bytes = one.bytes;
  if (one.did.kind == Kind::before) {
    out.is = Is::before, out.from = out.at;
  } else if (one.did.kind == Kind::constant) {
    out.is = Is::constant, out.value = {one.did.value};
  } else if (one.source >= 0) {
    const auto number = static_cast<std::size_t>(one.source);
    const bool known = number < sources_.size();
    const bool of_source = region.data.region.side == Side::producer;
    out.is = known ? Is::content : of_source ? Is::before : Is::lies;
    out.from = address(known ? sources_[number] : regions_[number - sources_.size()].data.region, one.source_offset);
  } else {
    out.is = Is::changed;
    const auto begin = static_cast<std::size_t>(one.at), bytes = static_cast<std::size_t>(one.bytes);
    const View found = region.data.found.subspan(begin, bytes), expected = region.data.expected.subspan(begin, bytes);
    for (std::size_t i = 0; i < found.size(); ++i) out.value.push_back(found[i] ^ expected[i]);
  }
  return out;
}

Crop RegionExtents::crop() const {
  if (large_) return crop_;
  Crop wrong;
  for (const Region& region : regions_) {
    if (region.data.region.group < 0) return {};
    for (const RegionExtent& one : region.extents) {
      if (!one.wrong) continue;
      const Provenance& provenance =
          one.should.kind == Kind::element ? one.should : one.did;  // else it lies where nothing belongs
      if (provenance.kind == Kind::element)
        wrong.layers.insert(provenance.layer), wrong.tokens[provenance.generation].insert(provenance.token);
    }
  }
  return crop_of(case_, wrong);
}

void RegionExtents::report_output(const scenario::AddressSpace& space, scenario::ReportedRun& out) const {
  for (const Region& region : regions_) {
    if (region.data.region.group >= 0) continue;
    const Group& group = case_.groups.at(0);
    const auto& g = group.consumer.ranks.at(0).geometry;
    std::int64_t begin = region.base;
    auto one = region.extents.begin();
    for (std::size_t r = 0; r < group.requests.size(); ++r) {
      const std::int64_t end =
          begin + group.requests[r].tokens * g.kv * g.heads * g.head_dim * layout::bits(group.consumer.scheme.data) / 8;
      for (; one != region.extents.end() && one->at < end; ++one) {
        if (!one->wrong || !group.requests[r].transfer) continue;
        const scenario::BufferAddress start = space.address(place_name(case_, region.data.region, r));
        out.patches.push_back(patch(region, *one, {start.buffer, start.offset + one->at - begin}, space));
      }
      begin = end;
    }
  }
}

scenario::ReportedRun RegionExtents::reported(const scenario::AddressSpace& space, const Crop& crop) const {
  scenario::ReportedRun out;
  bool tails_came = false, beside_tails = false;
  std::map<int, std::map<std::int64_t, std::int64_t>> ignored;
  for (const Region& region : regions_) {
    if (region.data.region.group < 0) continue;
    tails_came = tails_came || region.tail_came;
    const scenario::BufferAddress start = space.address(place_name(case_, region.data.region));
    auto tail = region.tails.begin();
    const auto add = [&](const RegionExtent& one) {
      out.patches.push_back(patch(region, one, {start.buffer, start.offset + one.at - region.base}, space));
    };
    const RegionExtent* last = nullptr;
    for (const RegionExtent& one : region.extents) {
      if (!one.wrong) continue;
      const auto kept = [&](const Provenance& provenance) {
        return provenance.kind == Kind::element && crop.keeps(provenance);
      };
      if (!crop.whole && !kept(one.should) && !kept(one.did)) continue;
      if (masks_unknown_ && is_unknown(one)) {
        const std::int64_t at = start.offset + one.at - region.base;
        ignored[start.buffer][at] = at + one.bytes;
        continue;
      }
      if (!crop.whole &&
          ((one.should.kind == Kind::element && !kept(one.should)) || (one.did.kind == Kind::element && !kept(one.did)))) {
        const std::int64_t at = start.offset + one.at - region.base;
        ignored[start.buffer][at] = at + one.bytes;  // who else is in this is not played
        continue;
      }
      // A few bytes between two stretches of one copy are right by chance, in this pass.
      constexpr std::int64_t few = 16;
      if (last && last->source >= 0 && last->source == one.source &&
          one.at - last->at == one.source_offset - last->source_offset) {
        RegionExtent between = *last;
        between.at += last->bytes, between.source_offset += last->bytes, between.bytes = one.at - between.at;
        if (between.bytes > 0 && between.bytes <= few) add(between);
      }
      last = &one;
      add(one);
      while (tail != region.tails.end() && tail->second <= one.at) ++tail;
      beside_tails = beside_tails || tail == region.tails.end() || one.at < tail->first;
    }
    for (const auto& [begin, end] : region.tails)
      out.any[start.buffer][start.offset + begin - region.base] = start.offset + end - region.base;
  }
  if (!tails_came || !beside_tails) out.any.clear();
  for (auto& [buffer, ranges] : ignored) out.any[buffer].merge(ranges);
  report_output(space, out);  // it is read last
  return out;
}

}  // namespace kvcts::diagnose
