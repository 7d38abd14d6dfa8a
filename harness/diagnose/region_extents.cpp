#include "diagnose/region_extents.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "diagnose/findings/findings.hpp"
#include "diagnose/findings/layout_boxes.hpp"
#include "diagnose/findings/origins.hpp"
#include "diagnose/lowering.hpp"
#include "diagnose/owners.hpp"
#include "layout/layout.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

using layout::Axis;
using nlohmann::json;
using Kind = Provenance::Kind;
using View = findings::ByteView;

namespace {

constexpr std::int64_t shortest = 4, chance = 4;

View part(View whole, std::int64_t at, std::int64_t bytes) {
  return whole.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes));
}

Provenance described(Kind kind, const std::string& text) {
  Provenance out;
  out.kind = kind, out.text = text;
  return out;
}

/// What lies where a region holds no content, as far as the row of its seat or the gap between rows.
ElementRun poison_at(const RegionRef& region, std::int64_t offset, const std::optional<ElementRun>& location) {
  ElementRun out;
  out.run = location ? location->run : 1 << 20;
  out.element.kind = Kind::poison, out.element.region = region.name;
  out.element.offset = out.element.last_offset = offset;
  return out;
}

findings::Coordinates coord_of(const Provenance& provenance) {
  using A = findings::ContentAxis;
  findings::Coordinates out;
  out[A::component] = provenance.component.empty() ? 0 : provenance.component == "scale" ? 1 : 2;
  out[A::request] = provenance.generation;
  out[A::layer] = provenance.layer, out[A::kv] = provenance.kv, out[A::token] = provenance.token,
  out[A::head] = provenance.head;
  out[A::channel] = provenance.channel;
  return out;
}

/// What belongs `bytes` further along the row.
void advance(RegionExtent& one, std::int64_t bytes) {
  for (Provenance* provenance : {&one.location, &one.should}) {
    if (provenance->kind != Kind::element) continue;
    provenance->channel += bytes * 8 / one.bits, provenance->last_channel += bytes * 8 / one.bits;
  }
}

}  // namespace

RegionExtents::RegionExtents(const ResolvedCase& resolved, std::vector<View> producer)
    : case_(resolved), producer_(std::move(producer)), sources_(regions(resolved, Side::producer)) {
  for (const Side side : {Side::producer, Side::consumer}) {
    std::size_t bytes = 0;
    for (const RegionRef& region : regions(resolved, side)) bytes += static_cast<std::size_t>(region.bytes);
    large_ = large_ || bytes > cut_whole;
  }
}

/// Stretches of right and of wrong bytes within a row. A few right ones beside wrong ones are equal by chance.
void RegionExtents::cut_row(Region& region, const RegionExtent& row) {
  const View expected = part(region.data.expected, row.at, row.bytes), found = part(region.data.found, row.at, row.bytes);
  struct Cut {
    std::int64_t begin, end;
    bool wrong;
  };
  std::vector<Cut> cuts;
  const auto add = [&](std::int64_t begin, std::int64_t end, bool wrong) {
    if (!cuts.empty() && cuts.back().wrong == wrong)
      cuts.back().end = end;
    else
      cuts.push_back({begin, end, wrong});
  };
  const bool in_a_row = row.location.kind == Kind::element || row.should.kind == Kind::element;
  for (std::int64_t at = 0; at < row.bytes;) {
    const bool wrong = expected[static_cast<std::size_t>(at)] != found[static_cast<std::size_t>(at)];
    std::int64_t stop = at + 1;
    while (stop < row.bytes && (expected[static_cast<std::size_t>(stop)] != found[static_cast<std::size_t>(stop)]) == wrong)
      ++stop;
    // Of a guard only what lies between wrong bytes.
    const bool between = at > 0 && stop < row.bytes, beside = in_a_row && stop - at < row.bytes;
    add(at, stop, wrong || (stop - at < chance && (between || beside)));
    at = stop;
  }
  for (const Cut& cut : cuts) {
    // Where nothing belongs, right bytes are no news.
    if (!cut.wrong && row.should.kind != Kind::element) continue;
    RegionExtent one = row;
    one.at += cut.begin, one.bytes = cut.end - cut.begin, one.wrong = cut.wrong;
    advance(one, cut.begin);
    region.extents.push_back(std::move(one));
  }
}

void RegionExtents::add(const RegionBytes& data) {
  regions_.push_back({data, oracle::file_shape(case_, data.region.bytes).base, {}});
  Region& region = regions_.back();
  if (data.region.group < 0)
    cut_output(region);
  else if (!large_)
    cut_region(region);
  for (RegionExtent& one : region.extents) one.did = one.should;
}

/// Rows as output_bytes() describes them.
void RegionExtents::cut_output(Region& region) {
  const Group& group = case_.groups.at(0);
  const auto& g = group.consumer.ranks.at(0).geometry;
  RegionExtent row;
  row.at = region.base, row.bits = layout::bits(group.consumer.scheme.data);
  row.bytes = g.head_dim * row.bits / 8;
  row.should.kind = Kind::element, row.should.layer = g.first_layer;
  for (const Request& request : group.requests) {
    row.should.generation = request.generation;
    for (row.should.kv = 0; row.should.kv < g.kv; ++row.should.kv)
      for (row.should.token = 0; row.should.token < request.tokens; ++row.should.token)
        for (row.should.head = g.first_head; row.should.head < g.first_head + g.heads; ++row.should.head) {
          cut_row(region, row);
          row.at += row.bytes;
        }
  }
  extents_ += region.extents.size();
}

void RegionExtents::add_tail(Region& region, const RegionExtent& row) {
  if (!region.tails.empty() && region.tails.back().second == row.at)
    region.tails.back().second += row.bytes;
  else
    region.tails.emplace_back(row.at, row.at + row.bytes);
  const View found = part(region.data.found, row.at, row.bytes), before = part(region.data.before, row.at, row.bytes);
  region.tail_came = region.tail_came || !std::ranges::equal(found, before);
}

RegionExtent RegionExtents::row_at(const Region& region, const Owners& owners, std::int64_t at) const {
  const RegionRef& r = region.data.region;
  const bool source = r.side == Side::producer;
  const auto end = static_cast<std::int64_t>(region.data.found.size());
  const auto location = element_run_at(rank_of(case_, r).truth, r.allocation, at - region.base);
  RegionExtent row;
  row.at = at, row.bytes = location ? std::min(location->run, end - at) : 1;
  if (location) {
    row.bits = location->bits;
    row.location = location->element;
    row.should = source ? location->element : owners.source_of(location->element);
    if (source && !owners.own(row.should)) row.should = Owners::nothing();
  } else {
    // Guards whole, padding byte by byte: only the layout knows where it ends.
    row.bytes = at < region.base ? region.base - at : at < region.base + r.bytes ? 1 : end - at;
    row.should = described(Kind::nothing, "nothing: no data belongs here");
  }
  return row;
}

Owners RegionExtents::owners_of(const Region& region) const {
  const RegionRef& r = region.data.region;
  return {case_.groups.at(static_cast<std::size_t>(r.group)), r.side, r.side == Side::consumer};
}

void RegionExtents::cut_region(Region& region) {
  const Owners owners = owners_of(region);
  const auto end = static_cast<std::int64_t>(region.data.found.size());
  const std::size_t before = extents_;
  for (std::int64_t at = 0; at < end && extents_ <= most_extents;) {
    const RegionExtent row = row_at(region, owners, at);
    const bool located = row.location.kind == Kind::element;
    if (located && region.data.region.side == Side::consumer && row.should.kind != Kind::element &&
        owners.has_block(row.location.block))
      add_tail(region, row);
    const std::size_t first = region.extents.size();
    cut_row(region, row);
    if (!located && first > 0 && first < region.extents.size()) {
      RegionExtent &last = region.extents[first - 1], &next = region.extents[first];
      if (last.wrong && last.should == next.should && last.at + last.bytes == next.at) {
        last.bytes += next.bytes;
        region.extents.erase(region.extents.begin() + static_cast<std::ptrdiff_t>(first));
      }
    }
    at += row.bytes;
    extents_ = before + region.extents.size();
  }
}

/// Rows with a wrong byte, ascending.
void RegionExtents::each_wrong_row(const Region& region, const std::function<void(const RegionExtent&)>& body) const {
  constexpr std::int64_t page = 4096;
  const Owners owners = owners_of(region);
  const View expected = region.data.expected, found = region.data.found;
  const auto end = static_cast<std::int64_t>(found.size());
  for (std::int64_t at = 0; at < end;) {
    const std::int64_t stop = std::min(at + page, end);
    const auto [was, is] = std::mismatch(expected.begin() + at, expected.begin() + stop, found.begin() + at);
    const std::int64_t wrong = was - expected.begin();
    if (wrong == stop) {
      at = stop;
      continue;
    }
    RegionExtent row = row_at(region, owners, wrong);
    if (row.location.kind == Kind::element) {  // from its first byte on
      const std::int64_t ahead = row.location.channel * row.bits / 8;
      for (std::int64_t of_code = std::max<std::int64_t>(1, row.bits / 8) - 1; of_code >= 0; --of_code) {
        const std::int64_t begin = wrong - ahead - of_code;
        if (begin < at) continue;
        const RegionExtent whole = row_at(region, owners, begin);
        if (whole.location.kind != Kind::element || whole.location.channel != 0 || whole.at + whole.bytes <= wrong) continue;
        row = whole;
        break;
      }
    }
    body(row);
    at = row.at + row.bytes;
  }
}

/// Of what is too large to be cut whole: the rows that a search plays.
void RegionExtents::cut_large() {
  constexpr std::size_t most_unexpected = 20'000;
  Crop wrong;
  for (const Region& region : regions_) {
    if (region.data.region.group < 0) return;
    each_wrong_row(region, [&](const RegionExtent& row) {
      if (row.should.kind == Kind::element)
        wrong.layers.insert(row.should.layer), wrong.tokens[row.should.generation].insert(row.should.token);
    });
  }
  crop_ = crop_of(case_, wrong);
  for (Region& region : regions_) {
    std::size_t unexpected = 0;
    each_wrong_row(region, [&](const RegionExtent& row) {
      if (extents_ > most_extents) return;
      const bool element = row.should.kind == Kind::element;
      if (element ? !crop_.keeps(row.should) : ++unexpected > most_unexpected) return;
      const std::size_t before = region.extents.size();
      cut_row(region, row);
      extents_ += region.extents.size() - before;
    });
    for (RegionExtent& one : region.extents) one.did = one.should;
  }
}

/// Files in which wrong stretches are looked up: the producer's, the consumer's as found, the consumer's as it was.
class RegionExtents::Origins {
 public:
  explicit Origins(const RegionExtents& all) : all_(all), files_(all.producer_) {
    for (const Group& group : all.case_.groups)
      producers_.emplace_back(group, Side::producer, false), consumers_.emplace_back(group, Side::consumer, true);
    const auto any = [&](auto&& is) {
      return std::ranges::any_of(all.regions_, [&](const Region& r) { return is(r.data.region); });
    };
    // The output was gathered from the consumer, as it is.
    if (any([](const RegionRef& r) { return r.group < 0; })) add(gathered_, &RegionBytes::found);
    befores_ = files_.size();
    // A changed source may hold what the consumer had.
    if (any([](const RegionRef& r) { return r.side == Side::producer; })) add(destinations_, &RegionBytes::before);
  }

  const std::vector<View>& files() const { return files_; }

  findings::Likely likely(std::size_t source, std::int64_t at, const RegionExtent& one, const RegionRef& in) const {
    if (source >= befores_) return in.side == Side::producer ? findings::Likely{1 << 20, 1} : findings::Likely{};
    if (source >= all_.producer_.size()) {
      const auto location = in.group < 0 ? at_consumer(source - all_.producer_.size(), at, one) : std::nullopt;
      return location ? findings::Likely{location->run, location->element.kind == Kind::follows ? 5 : 4}
                      : findings::Likely{};
    }
    const ElementRun candidate = at_source(source, at);
    return {candidate.run, 2 * (candidate.element == one.should) + (candidate.element.kind == Kind::element)};
  }

  /// Where the bytes come from, as the search found it.
  void set(RegionExtent& one, const findings::SearchedRange& found) const {
    if (found.too_short) one.did = described(Kind::other, "too short to tell");
    if (found.source < 0) return;
    const auto source = static_cast<std::size_t>(found.source), producers = all_.producer_.size();
    if (source < producers) {
      one.did = at_source(source, found.from).element;
      one.source = found.source;
      one.source_offset = found.from - oracle::file_shape(all_.case_, all_.sources_[source].bytes).base;
      return;
    }
    const Region& region = source >= befores_ ? *destinations_[source - befores_] : *gathered_[source - producers];
    one.did = source >= befores_ ? poison_at(region.data.region, found.from - region.base, std::nullopt).element
                                 : at_consumer(source - producers, found.from, one)->element;
    one.source = static_cast<int>(all_.sources_.size() + static_cast<std::size_t>(&region - all_.regions_.data()));
    one.source_offset = found.from - region.base;
  }

 private:
  void add(std::vector<const Region*>& regions, View RegionBytes::* bytes) {
    for (const Region& region : all_.regions_) {
      if (region.data.region.side != Side::consumer || region.data.region.group < 0) continue;
      files_.push_back(region.data.*bytes);
      regions.push_back(&region);
    }
  }

  /// What the producer has at one byte of its files, and how far its row reaches.
  ElementRun at_source(std::size_t file, std::int64_t at) const {
    const RegionRef& source = all_.sources_[file];
    const std::int64_t offset = at - oracle::file_shape(all_.case_, source.bytes).base;
    auto location = element_run_at(rank_of(all_.case_, source).truth, source.allocation, offset);
    if (!location || !producers_[static_cast<std::size_t>(source.group)].own(location->element))
      return poison_at(source, offset, location);
    location->element.rank = source.rank;
    return *location;
  }

  /// What a stretch of the output is that equals the consumer's bytes from one on; nothing: they are wrong themselves.
  std::optional<ElementRun> at_consumer(std::size_t number, std::int64_t at, const RegionExtent& one) const {
    const Region& region = *gathered_[number];
    const RegionRef& r = region.data.region;
    auto location = element_run_at(rank_of(all_.case_, r).truth, r.allocation, at - region.base);
    if (!location || !consumers_[static_cast<std::size_t>(r.group)].own(location->element))
      return poison_at(r, at - region.base, location);
    if (coord_of(location->element) == coord_of(one.should)) {
      location->element = described(Kind::follows, "as it lies in the consumer");
      return location;
    }
    const auto rest = std::min(location->run, static_cast<std::int64_t>(region.data.found.size()) - at);
    if (std::ranges::equal(part(region.data.found, at, rest), part(region.data.expected, at, rest))) return location;
    return std::nullopt;
  }

  const RegionExtents& all_;
  std::vector<View> files_;
  std::vector<Owners> producers_, consumers_;
  std::vector<const Region*> gathered_, destinations_;
  std::size_t befores_{0};  ///< the first file of those as they were
};

void RegionExtents::search() {
  if (large_) cut_large();
  const Origins origins(*this);
  std::vector<RegionExtent> wanted;
  std::vector<findings::SearchedRange> bytes;
  std::vector<std::size_t> region_of;
  for (std::size_t r = 0; r < regions_.size(); ++r) {
    Region& region = regions_[r];
    std::vector<RegionExtent> known;
    for (RegionExtent& one : region.extents) {
      if (one.wrong) one.did = at_sight(region, one);
      if (!one.wrong || one.did != Provenance{}) {
        known.push_back(std::move(one));
        continue;
      }
      bytes.push_back({wanted.size(), region.data.found, one.at, one.bytes});
      wanted.push_back(std::move(one));
      region_of.push_back(r);
    }
    region.extents = std::move(known);
  }
  const auto judge = [&](int source, std::int64_t at, const findings::SearchedRange& extent) {
    RegionExtent one = wanted[extent.number];
    advance(one, extent.at - one.at);
    return origins.likely(static_cast<std::size_t>(source), at, one, regions_[region_of[extent.number]].data.region);
  };
  for (const findings::SearchedRange& found : findings::origins_of(origins.files(), std::move(bytes), judge)) {
    RegionExtent one = wanted[found.number];
    advance(one, found.at - one.at);
    one.at = found.at, one.bytes = found.bytes;
    origins.set(one, found);
    regions_[region_of[found.number]].extents.push_back(std::move(one));
  }
  for (Region& region : regions_) std::ranges::sort(region.extents, {}, [](const RegionExtent& one) { return one.at; });
}

bool RegionExtents::is_unknown(const RegionExtent& one) {
  return one.wrong && one.source < 0 && one.did.kind != Kind::before && one.did.kind != Kind::constant;
}

std::int64_t RegionExtents::unexplained() const {
  std::int64_t out = 0;
  for (const Region& region : regions_)
    for (const RegionExtent& one : region.extents) out += masks_unknown_ && is_unknown(one) ? one.bytes : 0;
  return out;
}

/// What needs no search; unknown: the rest.
Provenance RegionExtents::at_sight(const Region& region, const RegionExtent& one) {
  const View found = part(region.data.found, one.at, one.bytes);
  if (std::ranges::equal(part(region.data.before, one.at, one.bytes), found))
    return described(Kind::before, "what was there before");
  Provenance out;
  if (one.bytes >= shortest && std::ranges::all_of(found, [&](std::uint8_t byte) { return byte == found[0]; }))
    out.kind = Kind::constant, out.value = found[0];
  return out;
}

json RegionExtents::moves() const {
  constexpr std::size_t most = 96, in_front = 8;
  for (const Region& region : regions_) {
    const auto& all = region.extents;
    const auto wrong = std::ranges::find_if(all, [](const RegionExtent& one) { return one.wrong; });
    if (wrong == all.end()) continue;
    const auto first = static_cast<std::size_t>(wrong - all.begin());
    const std::size_t begin = first > in_front ? first - in_front : 0, stop = std::min(all.size(), begin + most);
    json moves = json::array();
    std::int64_t left = oracle::transfer_bytes(case_).least;
    for (std::size_t i = begin; i < stop; ++i) {
      left -= all[i].bytes;
      moves.push_back({{"region", region.data.region.name},
                       {"offset", all[i].at - region.base},
                       {"bytes", all[i].bytes},
                       {"should", place_json(all[i].should)},
                       {"did", place_json(all[i].did)}});
    }
    return {{"moves", moves}, {"moves_from", "bytes"}, {"bytes_left_out", std::max<std::int64_t>(0, left)}};
  }
  return nullptr;
}

// ---- findings ------------------------------------------------------------------------------------------------------

namespace {

findings::ByteSource source_of(const Provenance& provenance) {
  findings::ByteSource out;
  switch (provenance.kind) {
    case Kind::element:
      out.kind = findings::ByteSource::Kind::element;
      out.at = coord_of(provenance);
      break;
    case Kind::constant:
      out.kind = findings::ByteSource::Kind::constant, out.value = provenance.value;
      break;
    case Kind::poison:
      out.kind = findings::ByteSource::Kind::poison;
      out.text = provenance.region.starts_with("consumer/") ? "the consumer" : "the producer";
      break;
    case Kind::follows:
      out.kind = findings::ByteSource::Kind::follows, out.text = "the consumer";
      break;
    case Kind::nothing:
    case Kind::before:
      out.kind = findings::ByteSource::Kind::nothing;
      break;
    case Kind::other:
    case Kind::unknown:
      break;
  }
  return out;
}

}  // namespace

/// What the producer has, where the transfer did not change it.
void RegionExtents::add_content(const RegionRef& source, int memory, int region,
                                std::vector<findings::Extent>& facts) const {
  const Owners owners(case_.groups.at(static_cast<std::size_t>(source.group)), Side::producer, false);
  const auto& cache = rank_of(case_, source).truth;
  for (std::int64_t at = 0; at < source.bytes;) {
    auto location = element_run_at(cache, source.allocation, at);
    const std::int64_t bytes = location ? std::min(location->run, source.bytes - at) : 1;
    if (location && owners.own(location->element)) {
      findings::Extent extent;
      extent.memory = memory, extent.region = region;
      extent.offset = at, extent.bytes = bytes;
      extent.channels = std::max<std::int64_t>(1, bytes * 8 / location->bits), extent.bits = extent.is_bits = location->bits;
      extent.should = source_of(location->element);
      extent.should.at[findings::ContentAxis::block] = location->element.block,
      extent.should.at[findings::ContentAxis::slot] = location->element.slot;
      extent.is = extent.should;
      facts.push_back(std::move(extent));
    }
    at += bytes;
  }
}

findings::Extent RegionExtents::extent_of(const Region& region, const RegionExtent& one) {
  using findings::ContentAxis;
  findings::Extent out;
  out.offset = one.at - region.base, out.bytes = one.bytes;
  out.wrong = one.wrong;
  const auto is_before = [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    return region.data.before[i] == region.data.found[i];
  };
  if (!one.wrong)
    while (out.as_before < one.bytes && is_before(one.at + one.bytes - 1 - out.as_before)) ++out.as_before;
  out.should = source_of(one.should);
  if (one.location.kind == Kind::element) {
    if (out.should.kind != findings::ByteSource::Kind::element) {
      out.should.at = coord_of(one.location);
      out.should.at[ContentAxis::request] = out.should.at[ContentAxis::token] = findings::none;
    }
    out.should.at[ContentAxis::block] = one.location.block, out.should.at[ContentAxis::slot] = one.location.slot;
  }
  if (one.location.kind == Kind::element || one.should.kind == Kind::element)
    out.channels = std::max<std::int64_t>(1, one.bytes * 8 / one.bits), out.bits = out.is_bits = one.bits;
  out.is = one.wrong ? source_of(one.did) : out.should;
  out.from = one.source, out.from_offset = one.source_offset;
  return out;
}

std::vector<Finding> RegionExtents::what_happened() const {
  if (extents_ > most_extents || (large_ && !crop_.whole)) return {};
  findings::Labels names;
  std::vector<findings::Extent> facts;
  std::map<std::tuple<Side, int, int>, int> memories;
  for (const Group& group : case_.groups) {
    std::size_t number = 0;
    if (group.consumer.ranks.empty()) continue;  // known by generation
    for (const Request& request : group.requests)
      names.requests.emplace(request.generation, std::to_string(number++) + (request.transfer ? "" : " (not to be moved)"));
  }
  const auto memory_of = [&](const RegionRef& r) {
    const auto [at, added] = memories.try_emplace({r.side, r.group, r.rank}, static_cast<int>(names.memories.size()));
    if (!added) return at->second;
    if (r.group < 0) {
      names.first_output = at->second;
      names.memories.emplace_back("output");
      return at->second;
    }
    if (r.side == Side::producer) names.sources.insert(at->second);
    names.memories.push_back(memory_name(case_, r.side, r.group, r.rank));
    for (const layout::Plane& plane : rank_of(case_, r).truth.planes)
      names.planes[at->second].push_back(findings::plane_of(plane));
    return at->second;
  };
  std::set<std::string> changed;
  for (const Region& region : regions_) {
    if (region.data.region.group >= 0) memory_of(region.data.region);
    if (region.data.region.side == Side::producer) changed.insert(region.data.region.name);
  }
  for (const RegionRef& source : sources_) {
    names.regions.push_back(source.name);
    const int memory = memory_of(source);
    if (changed.contains(source.name)) continue;
    add_content(source, memory, static_cast<int>(names.regions.size()) - 1, facts);
  }
  for (const Region& region : regions_) {
    const RegionRef& r = region.data.region;
    names.regions.push_back(r.name);
    for (const RegionExtent& one : region.extents) {
      findings::Extent extent = extent_of(region, one);
      extent.memory = memory_of(r);
      extent.region = static_cast<int>(names.regions.size()) - 1;
      facts.push_back(std::move(extent));
    }
  }
  return findings::what_happened(facts, names);
}

}  // namespace kvcts::diagnose
