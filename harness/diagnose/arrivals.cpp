#include "diagnose/arrivals.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "diagnose/findings/findings.hpp"
#include "diagnose/findings/origins.hpp"
#include "diagnose/findings/places.hpp"
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

Provenance said(Kind kind, const std::string& text) {
  Provenance out;
  out.kind = kind, out.text = text;
  return out;
}

/// What lies where a region holds no content, as far as the row of its seat or the gap between rows.
Seat poison_at(const RegionRef& region, std::int64_t offset, const std::optional<Seat>& seat) {
  Seat out;
  out.run = seat ? seat->run : 1 << 20;
  out.who.kind = Kind::poison, out.who.region = region.name;
  out.who.offset = out.who.last_offset = offset;
  return out;
}

findings::Coord coord_of(const Provenance& who) {
  using A = findings::Axis;
  findings::Coord out;
  out[A::component] = who.component.empty() ? 0 : who.component == "scale" ? 1 : 2;
  out[A::request] = who.generation;
  out[A::layer] = who.layer, out[A::kv] = who.kv, out[A::token] = who.token, out[A::head] = who.head;
  out[A::channel] = who.channel;
  return out;
}

/// What belongs `bytes` further along the row.
void advance(Arrival& one, std::int64_t bytes) {
  for (Provenance* who : {&one.seat, &one.should}) {
    if (who->kind != Kind::element) continue;
    who->channel += bytes * 8 / one.bits, who->last_channel += bytes * 8 / one.bits;
  }
}

}  // namespace

Arrivals::Arrivals(const ResolvedCase& resolved, std::vector<View> producer)
    : case_(resolved), producer_(std::move(producer)), sources_(regions(resolved, Side::producer)) {
  for (const Side side : {Side::producer, Side::consumer}) {
    std::size_t bytes = 0;
    for (const RegionRef& region : regions(resolved, side)) bytes += static_cast<std::size_t>(region.bytes);
    large_ = large_ || bytes > cut_whole;
  }
}

/// Stretches of right and of wrong bytes within a row. A few right ones beside wrong ones are equal by chance.
void Arrivals::cut_row(Region& region, const Arrival& row) {
  const View expected = part(region.arrived.expected, row.at, row.bytes),
             found = part(region.arrived.found, row.at, row.bytes);
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
  const bool in_a_row = row.seat.kind == Kind::element || row.should.kind == Kind::element;
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
    Arrival one = row;
    one.at += cut.begin, one.bytes = cut.end - cut.begin, one.wrong = cut.wrong;
    advance(one, cut.begin);
    region.stretches.push_back(std::move(one));
  }
}

void Arrivals::add(const Arrived& arrived) {
  regions_.push_back({arrived, oracle::file_shape(case_, arrived.region.bytes).base, {}});
  Region& region = regions_.back();
  if (arrived.region.group < 0)
    cut_output(region);
  else if (!large_)
    cut_region(region);
  for (Arrival& one : region.stretches) one.did = one.should;
}

/// Rows as output_bytes() describes them.
void Arrivals::cut_output(Region& region) {
  const Group& group = case_.groups.at(0);
  const auto& g = group.consumer.ranks.at(0).geometry;
  Arrival row;
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
  stretches_ += region.stretches.size();
}

void Arrivals::add_tail(Region& region, const Arrival& row) {
  if (!region.tails.empty() && region.tails.back().second == row.at)
    region.tails.back().second += row.bytes;
  else
    region.tails.emplace_back(row.at, row.at + row.bytes);
  const View found = part(region.arrived.found, row.at, row.bytes), before = part(region.arrived.before, row.at, row.bytes);
  region.tail_came = region.tail_came || !std::ranges::equal(found, before);
}

Arrival Arrivals::row_at(const Region& region, const Owners& owners, std::int64_t at) const {
  const RegionRef& r = region.arrived.region;
  const bool source = r.side == Side::producer;
  const auto end = static_cast<std::int64_t>(region.arrived.found.size());
  const auto seat = seat_at(rank_of(case_, r).truth, r.allocation, at - region.base);
  Arrival row;
  row.at = at, row.bytes = seat ? std::min(seat->run, end - at) : 1;
  if (seat) {
    row.bits = seat->bits;
    row.seat = seat->who;
    row.should = source ? seat->who : owners.source_of(seat->who);
    if (source && !owners.own(row.should)) row.should = Owners::nothing();
  } else {
    // Guards whole, padding byte by byte: only the layout knows where it ends.
    row.bytes = at < region.base ? region.base - at : at < region.base + r.bytes ? 1 : end - at;
    row.should = said(Kind::nothing, "nothing: no data belongs here");
  }
  return row;
}

Owners Arrivals::owners_of(const Region& region) const {
  const RegionRef& r = region.arrived.region;
  return {case_.groups.at(static_cast<std::size_t>(r.group)), r.side, r.side == Side::consumer};
}

void Arrivals::cut_region(Region& region) {
  const Owners owners = owners_of(region);
  const auto end = static_cast<std::int64_t>(region.arrived.found.size());
  const std::size_t before = stretches_;
  for (std::int64_t at = 0; at < end && stretches_ <= most_stretches;) {
    const Arrival row = row_at(region, owners, at);
    const bool seated = row.seat.kind == Kind::element;
    if (seated && region.arrived.region.side == Side::consumer && row.should.kind != Kind::element &&
        owners.has_block(row.seat.block))
      add_tail(region, row);
    const std::size_t first = region.stretches.size();
    cut_row(region, row);
    if (!seated && first > 0 && first < region.stretches.size()) {
      Arrival &last = region.stretches[first - 1], &next = region.stretches[first];
      if (last.wrong && last.should == next.should && last.at + last.bytes == next.at) {
        last.bytes += next.bytes;
        region.stretches.erase(region.stretches.begin() + static_cast<std::ptrdiff_t>(first));
      }
    }
    at += row.bytes;
    stretches_ = before + region.stretches.size();
  }
}

/// Rows with a wrong byte, ascending.
void Arrivals::each_wrong_row(const Region& region, const std::function<void(const Arrival&)>& body) const {
  constexpr std::int64_t page = 4096;
  const Owners owners = owners_of(region);
  const View expected = region.arrived.expected, found = region.arrived.found;
  const auto end = static_cast<std::int64_t>(found.size());
  for (std::int64_t at = 0; at < end;) {
    const std::int64_t stop = std::min(at + page, end);
    const auto [was, is] = std::mismatch(expected.begin() + at, expected.begin() + stop, found.begin() + at);
    const std::int64_t wrong = was - expected.begin();
    if (wrong == stop) {
      at = stop;
      continue;
    }
    Arrival row = row_at(region, owners, wrong);
    if (row.seat.kind == Kind::element) {  // from its first byte on
      const std::int64_t ahead = row.seat.channel * row.bits / 8;
      for (std::int64_t of_code = std::max<std::int64_t>(1, row.bits / 8) - 1; of_code >= 0; --of_code) {
        const std::int64_t begin = wrong - ahead - of_code;
        if (begin < at) continue;
        const Arrival whole = row_at(region, owners, begin);
        if (whole.seat.kind != Kind::element || whole.seat.channel != 0 || whole.at + whole.bytes <= wrong) continue;
        row = whole;
        break;
      }
    }
    body(row);
    at = row.at + row.bytes;
  }
}

/// Of what is too large to be cut whole: the rows that a search plays.
void Arrivals::cut_large() {
  constexpr std::size_t most_strays = 20'000;
  Crop wrong;
  for (const Region& region : regions_) {
    if (region.arrived.region.group < 0) return;
    each_wrong_row(region, [&](const Arrival& row) {
      if (row.should.kind == Kind::element)
        wrong.layers.insert(row.should.layer), wrong.tokens[row.should.generation].insert(row.should.token);
    });
  }
  crop_ = crop_of(case_, wrong);
  for (Region& region : regions_) {
    std::size_t strays = 0;
    each_wrong_row(region, [&](const Arrival& row) {
      if (stretches_ > most_stretches) return;
      const bool element = row.should.kind == Kind::element;
      if (element ? !crop_.keeps(row.should) : ++strays > most_strays) return;
      const std::size_t before = region.stretches.size();
      cut_row(region, row);
      stretches_ += region.stretches.size() - before;
    });
    for (Arrival& one : region.stretches) one.did = one.should;
  }
}

void Arrivals::search() {
  if (large_) cut_large();
  std::vector<Owners> owners;
  for (const Group& group : case_.groups) owners.emplace_back(group, Side::producer, false);
  /// What the producer has at one byte of its files, and how far its row reaches.
  const auto at_home = [&](std::size_t f, std::size_t i) {
    const RegionRef& source = sources_[f];
    const std::int64_t offset = static_cast<std::int64_t>(i) - oracle::file_shape(case_, source.bytes).base;
    auto seat = seat_at(rank_of(case_, source).truth, source.allocation, offset);
    if (seat && owners[static_cast<std::size_t>(source.group)].own(seat->who)) {
      seat->who.rank = source.rank;
      return *seat;
    }
    return poison_at(source, offset, seat);
  };

  // The output was gathered from the consumer, as it is.
  std::vector<View> files = producer_;
  std::vector<const Region*> gathered;
  std::vector<Owners> consumers;
  for (const Group& group : case_.groups) consumers.emplace_back(group, Side::consumer, true);
  const bool read = std::ranges::any_of(regions_, [](const Region& r) { return r.arrived.region.group < 0; });
  for (const Region& region : regions_) {
    if (!read || region.arrived.region.side != Side::consumer || region.arrived.region.group < 0) continue;
    files.push_back(region.arrived.found);
    gathered.push_back(&region);
  }
  // A changed source may hold what the consumer had.
  const bool changed =
      std::ranges::any_of(regions_, [](const Region& r) { return r.arrived.region.side == Side::producer; });
  const std::size_t befores = files.size();
  std::vector<const Region*> destinations;
  for (const Region& region : regions_) {
    if (!changed || region.arrived.region.side != Side::consumer || region.arrived.region.group < 0) continue;
    files.push_back(region.arrived.before);
    destinations.push_back(&region);
  }
  /// What a stretch of the output is that equals the consumer's bytes from one on; nothing: they are wrong themselves.
  const auto at_consumer = [&](std::size_t number, std::int64_t at, const Arrival& one) -> std::optional<Seat> {
    const Region& region = *gathered[number];
    const RegionRef& r = region.arrived.region;
    auto seat = seat_at(rank_of(case_, r).truth, r.allocation, at - region.base);
    if (seat && consumers[static_cast<std::size_t>(r.group)].own(seat->who)) {
      if (coord_of(seat->who) == coord_of(one.should)) {
        seat->who = said(Kind::follows, "as it lies in the consumer");
        return seat;
      }
      const auto rest = std::min(seat->run, static_cast<std::int64_t>(region.arrived.found.size()) - at);
      if (std::ranges::equal(part(region.arrived.found, at, rest), part(region.arrived.expected, at, rest))) return seat;
      return std::nullopt;
    }
    return poison_at(r, at - region.base, seat);
  };

  std::vector<Arrival> wanted;
  std::vector<findings::Stretch> bytes;
  std::vector<std::size_t> region_of;
  for (std::size_t r = 0; r < regions_.size(); ++r) {
    Region& region = regions_[r];
    std::vector<Arrival> known;
    for (Arrival& one : region.stretches) {
      if (one.wrong) one.did = at_sight(region, one);
      if (!one.wrong || one.did != Provenance{}) {
        known.push_back(std::move(one));
        continue;
      }
      bytes.push_back({wanted.size(), region.arrived.found, one.at, one.bytes});
      wanted.push_back(std::move(one));
      region_of.push_back(r);
    }
    region.stretches = std::move(known);
  }
  const auto is_output = [&](std::size_t number) { return regions_[region_of[number]].arrived.region.group < 0; };
  const auto judge = [&](int source, std::int64_t at, const findings::Stretch& stretch) {
    Arrival one = wanted[stretch.number];
    advance(one, stretch.at - one.at);
    const bool of_source = regions_[region_of[stretch.number]].arrived.region.side == Side::producer;
    if (static_cast<std::size_t>(source) >= befores) return of_source ? findings::Likely{1 << 20, 1} : findings::Likely{};
    if (static_cast<std::size_t>(source) >= producer_.size()) {
      const auto seat = is_output(stretch.number) ? at_consumer(static_cast<std::size_t>(source) - producer_.size(), at, one)
                                                  : std::nullopt;
      return seat ? findings::Likely{seat->run, seat->who.kind == Kind::follows ? 5 : 4} : findings::Likely{};
    }
    const Seat home = at_home(static_cast<std::size_t>(source), static_cast<std::size_t>(at));
    return findings::Likely{home.run, 2 * (home.who == one.should) + (home.who.kind == Kind::element)};
  };
  for (const findings::Stretch& found : findings::origins_of(files, std::move(bytes), judge)) {
    Arrival one = wanted[found.number];
    advance(one, found.at - one.at);
    one.at = found.at, one.bytes = found.bytes;
    if (found.too_short) one.did = said(Kind::other, "too short to tell");
    if (found.source >= static_cast<int>(befores)) {
      const Region& region = *destinations[static_cast<std::size_t>(found.source) - befores];
      one.did = poison_at(region.arrived.region, found.from - region.base, std::nullopt).who;
      one.home = static_cast<int>(sources_.size() + static_cast<std::size_t>(&region - regions_.data()));
      one.home_offset = found.from - region.base;
    } else if (found.source >= static_cast<int>(producer_.size())) {
      const std::size_t number = static_cast<std::size_t>(found.source) - producer_.size();
      one.did = at_consumer(number, found.from, one)->who;
      one.home = static_cast<int>(sources_.size() + static_cast<std::size_t>(gathered[number] - regions_.data()));
      one.home_offset = found.from - gathered[number]->base;
    } else if (found.source >= 0) {
      const auto source = static_cast<std::size_t>(found.source);
      one.did = at_home(source, static_cast<std::size_t>(found.from)).who;
      one.home = found.source;
      one.home_offset = found.from - oracle::file_shape(case_, sources_[source].bytes).base;
    }
    regions_[region_of[found.number]].stretches.push_back(std::move(one));
  }
  for (Region& region : regions_) std::ranges::sort(region.stretches, {}, [](const Arrival& one) { return one.at; });
}

bool Arrivals::is_unknown(const Arrival& one) {
  return one.wrong && one.home < 0 && one.did.kind != Kind::before && one.did.kind != Kind::constant;
}

std::int64_t Arrivals::unexplained() const {
  std::int64_t out = 0;
  for (const Region& region : regions_)
    for (const Arrival& one : region.stretches) out += forgives_ && is_unknown(one) ? one.bytes : 0;
  return out;
}

/// What needs no search; unknown: the rest.
Provenance Arrivals::at_sight(const Region& region, const Arrival& one) {
  const View found = part(region.arrived.found, one.at, one.bytes);
  if (std::ranges::equal(part(region.arrived.before, one.at, one.bytes), found))
    return said(Kind::before, "what was there before");
  Provenance out;
  if (one.bytes >= shortest && std::ranges::all_of(found, [&](std::uint8_t byte) { return byte == found[0]; }))
    out.kind = Kind::constant, out.value = found[0];
  return out;
}

json Arrivals::moves() const {
  constexpr std::size_t most = 96, in_front = 8;
  for (const Region& region : regions_) {
    const auto& all = region.stretches;
    const auto wrong = std::ranges::find_if(all, [](const Arrival& one) { return one.wrong; });
    if (wrong == all.end()) continue;
    const auto first = static_cast<std::size_t>(wrong - all.begin());
    const std::size_t begin = first > in_front ? first - in_front : 0, stop = std::min(all.size(), begin + most);
    json moves = json::array();
    std::int64_t left = oracle::transfer_bytes(case_).least;
    for (std::size_t i = begin; i < stop; ++i) {
      left -= all[i].bytes;
      moves.push_back({{"region", region.arrived.region.name},
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

findings::Who who_of(const Provenance& who) {
  findings::Who out;
  switch (who.kind) {
    case Kind::element:
      out.kind = findings::Who::Kind::element;
      out.at = coord_of(who);
      break;
    case Kind::constant:
      out.kind = findings::Who::Kind::constant, out.value = who.value;
      break;
    case Kind::poison:
      out.kind = findings::Who::Kind::poison;
      out.text = who.region.starts_with("consumer/") ? "the consumer" : "the producer";
      break;
    case Kind::follows:
      out.kind = findings::Who::Kind::follows, out.text = "the consumer";
      break;
    case Kind::nothing:
    case Kind::before:
      out.kind = findings::Who::Kind::nothing;
      break;
    case Kind::other:
    case Kind::unknown:
      break;
  }
  return out;
}

}  // namespace

/// What the producer has, where the transfer did not change it.
void Arrivals::add_content(const RegionRef& source, int memory, int region, std::vector<findings::Fact>& facts) const {
  const Owners owners(case_.groups.at(static_cast<std::size_t>(source.group)), Side::producer, false);
  const auto& cache = rank_of(case_, source).truth;
  for (std::int64_t at = 0; at < source.bytes;) {
    auto seat = seat_at(cache, source.allocation, at);
    const std::int64_t bytes = seat ? std::min(seat->run, source.bytes - at) : 1;
    if (seat && owners.own(seat->who)) {
      findings::Fact fact;
      fact.memory = memory, fact.region = region;
      fact.offset = at, fact.bytes = bytes;
      fact.channels = std::max<std::int64_t>(1, bytes * 8 / seat->bits), fact.bits = fact.is_bits = seat->bits;
      fact.should = who_of(seat->who);
      fact.should.at[findings::Axis::block] = seat->who.block, fact.should.at[findings::Axis::slot] = seat->who.slot;
      fact.is = fact.should;
      facts.push_back(std::move(fact));
    }
    at += bytes;
  }
}

std::vector<Finding> Arrivals::what_happened() const {
  if (stretches_ > most_stretches || (large_ && !crop_.whole)) return {};
  findings::Names names;
  std::vector<findings::Fact> facts;
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
    if (region.arrived.region.group >= 0) memory_of(region.arrived.region);
    if (region.arrived.region.side == Side::producer) changed.insert(region.arrived.region.name);
  }
  for (const RegionRef& source : sources_) {
    names.regions.push_back(source.name);
    const int memory = memory_of(source);
    if (changed.contains(source.name)) continue;
    add_content(source, memory, static_cast<int>(names.regions.size()) - 1, facts);
  }
  for (const Region& region : regions_) {
    const RegionRef& r = region.arrived.region;
    names.regions.push_back(r.name);
    for (const Arrival& one : region.stretches) {
      findings::Fact fact;
      fact.memory = memory_of(r);
      fact.offset = one.at - region.base, fact.bytes = one.bytes;
      fact.wrong = one.wrong;
      const auto is_before = [&](std::int64_t at) {
        const auto i = static_cast<std::size_t>(at);
        return region.arrived.before[i] == region.arrived.found[i];
      };
      if (!one.wrong)
        while (fact.as_before < one.bytes && is_before(one.at + one.bytes - 1 - fact.as_before)) ++fact.as_before;
      fact.should = who_of(one.should);
      if (one.seat.kind == Kind::element) {
        if (fact.should.kind != findings::Who::Kind::element) {
          fact.should.at = coord_of(one.seat);
          fact.should.at[findings::Axis::request] = fact.should.at[findings::Axis::token] = findings::none;
        }
        fact.should.at[findings::Axis::block] = one.seat.block, fact.should.at[findings::Axis::slot] = one.seat.slot;
      }
      if (one.seat.kind == Kind::element || one.should.kind == Kind::element)
        fact.channels = std::max<std::int64_t>(1, one.bytes * 8 / one.bits), fact.bits = fact.is_bits = one.bits;
      fact.is = one.wrong ? who_of(one.did) : fact.should;
      fact.region = static_cast<int>(names.regions.size()) - 1;
      fact.from = one.home, fact.from_offset = one.home_offset;
      facts.push_back(std::move(fact));
    }
  }
  return findings::what_happened(facts, names);
}

}  // namespace kvcts::diagnose
