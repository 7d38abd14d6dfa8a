#include "run/checker/arrivals.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "diagnose/findings/findings.hpp"
#include "diagnose/findings/origins.hpp"
#include "layout/layout.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

using layout::Axis;
using nlohmann::json;
using Kind = Provenance::Kind;
using View = findings::ByteView;

namespace {

constexpr std::int64_t shortest = 4, chance = 4;

View part(View whole, std::int64_t at, std::int64_t bytes) {
  return whole.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes));
}

Provenance said(const std::string& text) {
  Provenance out;
  out.kind = Kind::other, out.text = text;
  return out;
}

/// The tokens of a group's blocks, by block.
class Owners {
 public:
  Owners(const Group& group, Side side, bool transferred_only) : group_(group) {
    for (const auto& b : oracle::content(group, side, transferred_only)) blocks_[b.block].push_back(b);
  }
  /// Fills generation and token of an element by its place. False: the slot is unowned.
  bool own(Provenance& at) const {
    const auto found = blocks_.find(at.block);
    if (found == blocks_.end()) return false;
    for (const auto& b : found->second) {
      if (at.slot < b.first_slot || at.slot >= b.first_slot + b.tokens) continue;
      at.generation = b.generation;
      at.token = b.first_token + at.slot - b.first_slot;
      return true;
    }
    return false;
  }
  /// The place in the producer's pool of the content that belongs at a place of the consumer's.
  Provenance source_of(const Provenance& at) const {
    Provenance seat = at;
    if (own(seat)) {
      for (const Request& r : group_.requests) {
        if (!r.transfer || r.generation != seat.generation ||
            std::find(r.consumer_blocks.begin(), r.consumer_blocks.end(), at.block) == r.consumer_blocks.end())
          continue;
        const std::int64_t size = group_.producer.ranks.front().geometry.block_size;
        if (static_cast<std::size_t>(seat.token / size) >= r.producer_blocks.size()) continue;
        Provenance from = seat;
        from.block = r.producer_blocks[static_cast<std::size_t>(seat.token / size)], from.slot = seat.token % size;
        for (std::size_t rank = 0; rank < group_.producer.ranks.size(); ++rank) {
          const auto& g = group_.producer.ranks[rank].geometry;
          if (at.head >= g.first_head && at.head < g.first_head + g.heads) {
            from.rank = static_cast<int>(rank);
            return from;
          }
        }
      }
    }
    return said("nothing: an unowned slot");
  }

 private:
  const Group& group_;
  std::unordered_map<std::int64_t, std::vector<kernels::BlockContent>> blocks_;
};

/// What belongs `bytes` further along the row.
void advance(Arrival& one, std::int64_t bytes) {
  for (Provenance* who : {&one.seat, &one.should}) {
    if (who->kind != Kind::element) continue;
    who->channel += bytes * 8 / one.bits, who->last_channel += bytes * 8 / one.bits;
  }
}

}  // namespace

Arrivals::Arrivals(const ResolvedCase& resolved, std::vector<View> producer)
    : case_(resolved), producer_(std::move(producer)), sources_(regions(resolved, Side::producer)) {}

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
  for (std::int64_t at = 0; at < row.bytes;) {
    const bool wrong = expected[static_cast<std::size_t>(at)] != found[static_cast<std::size_t>(at)];
    std::int64_t stop = at + 1;
    while (stop < row.bytes && (expected[static_cast<std::size_t>(stop)] != found[static_cast<std::size_t>(stop)]) == wrong)
      ++stop;
    // Of a guard only what lies between wrong bytes.
    const bool between = at > 0 && stop < row.bytes, beside = row.seat.kind == Kind::element && stop - at < row.bytes;
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
  const RegionRef& r = arrived.region;
  const Group& group = case_.groups.at(static_cast<std::size_t>(r.group));
  const auto& cache = rank_of(case_, r).truth;
  const Owners owners(group, Side::consumer, true);
  regions_.push_back({arrived, oracle::file_shape(case_, r.bytes).base, {}});
  Region& region = regions_.back();
  const auto end = static_cast<std::int64_t>(arrived.found.size());
  const std::size_t before = stretches_;
  for (std::int64_t at = 0; at < end && stretches_ <= most_stretches;) {
    const auto spot = seat_at(cache, r.allocation, at - region.base);
    Arrival row;
    row.at = at, row.bytes = spot ? std::min(spot->run, end - at) : 1;
    if (spot) {
      row.bits = spot->bits;
      row.seat = spot->who;
      row.should = owners.source_of(spot->who);
    } else {
      // Guards whole, padding byte by byte: only the layout knows where it ends.
      row.bytes = at < region.base ? region.base - at : at < region.base + r.bytes ? 1 : end - at;
      row.should = said("nothing: no data belongs here");
    }
    const std::size_t first = region.stretches.size();
    cut_row(region, row);
    if (!spot && first > 0 && first < region.stretches.size()) {
      Arrival &last = region.stretches[first - 1], &next = region.stretches[first];
      if (last.wrong && last.should == next.should && last.at + last.bytes == next.at) {
        last.bytes += next.bytes;
        region.stretches.erase(region.stretches.begin() + static_cast<std::ptrdiff_t>(first));
      }
    }
    at += row.bytes;
    stretches_ = before + region.stretches.size();
  }
  for (Arrival& one : region.stretches) one.did = one.should;
}

void Arrivals::search() {
  std::vector<Owners> owners;
  for (const Group& group : case_.groups) owners.emplace_back(group, Side::producer, false);
  /// What the producer has at one byte of its files, and how far its row reaches.
  const auto at_home = [&](std::size_t f, std::size_t i) {
    const RegionRef& source = sources_[f];
    const std::int64_t offset = static_cast<std::int64_t>(i) - oracle::file_shape(case_, source.bytes).base;
    auto spot = seat_at(rank_of(case_, source).truth, source.allocation, offset);
    if (spot && owners[static_cast<std::size_t>(source.group)].own(spot->who)) {
      spot->who.rank = source.rank;
      return *spot;
    }
    Seat poison;
    poison.run = spot ? spot->run : 1 << 20;
    poison.who.kind = Kind::poison, poison.who.region = source.name;
    poison.who.offset = poison.who.last_offset = offset;
    return poison;
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
  const auto judge = [&](int source, std::int64_t at, const findings::Stretch& stretch) {
    const Seat home = at_home(static_cast<std::size_t>(source), static_cast<std::size_t>(at));
    Arrival one = wanted[stretch.number];
    advance(one, stretch.at - one.at);
    return findings::Likely{home.run, 2 * (home.who == one.should) + (home.who.kind == Kind::element)};
  };
  for (const findings::Stretch& found : findings::origins_of(producer_, std::move(bytes), judge)) {
    Arrival one = wanted[found.number];
    advance(one, found.at - one.at);
    one.at = found.at, one.bytes = found.bytes;
    if (found.too_short) one.did = said("too short to tell");
    if (found.source >= 0) {
      const auto source = static_cast<std::size_t>(found.source);
      one.did = at_home(source, static_cast<std::size_t>(found.from)).who;
      one.home = found.source;
      one.home_offset = found.from - oracle::file_shape(case_, sources_[source].bytes).base;
    }
    regions_[region_of[found.number]].stretches.push_back(std::move(one));
  }
  for (Region& region : regions_) std::ranges::sort(region.stretches, {}, [](const Arrival& one) { return one.at; });
}

/// What needs no search; unknown: the rest.
Provenance Arrivals::at_sight(const Region& region, const Arrival& one) {
  const View found = part(region.arrived.found, one.at, one.bytes);
  if (std::ranges::equal(part(region.arrived.before, one.at, one.bytes), found)) return said("what was there before");
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

findings::Coord coord_of(const Provenance& who) {
  using A = findings::Axis;
  findings::Coord out;
  out[A::component] = who.component.empty() ? 0 : who.component == "scale" ? 1 : 2;
  out[A::request] = who.generation;
  out[A::layer] = who.layer, out[A::kv] = who.kv, out[A::token] = who.token, out[A::head] = who.head;
  out[A::channel] = who.channel;
  return out;
}

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
      out.kind = findings::Who::Kind::poison, out.text = "the producer";
      break;
    case Kind::other:
      if (who.text == "what was there before" || who.text.starts_with("nothing")) out.kind = findings::Who::Kind::nothing;
      break;
    case Kind::unknown:
      break;
  }
  return out;
}

}  // namespace

/// What the producer has: the transfer does not change it.
void Arrivals::add_content(const RegionRef& source, int memory, int region, std::vector<findings::Fact>& facts) const {
  const Owners owners(case_.groups.at(static_cast<std::size_t>(source.group)), Side::producer, false);
  const auto& cache = rank_of(case_, source).truth;
  for (std::int64_t at = 0; at < source.bytes;) {
    auto spot = seat_at(cache, source.allocation, at);
    const std::int64_t bytes = spot ? std::min(spot->run, source.bytes - at) : 1;
    if (spot && owners.own(spot->who)) {
      findings::Fact fact;
      fact.memory = memory, fact.region = region;
      fact.offset = at, fact.bytes = bytes;
      fact.channels = std::max<std::int64_t>(1, bytes * 8 / spot->bits);
      fact.should = who_of(spot->who);
      fact.should.at[findings::Axis::block] = spot->who.block, fact.should.at[findings::Axis::slot] = spot->who.slot;
      fact.is = fact.should;
      facts.push_back(std::move(fact));
    }
    at += bytes;
  }
}

std::vector<Finding> Arrivals::what_happened() const {
  if (stretches_ > most_stretches) return {};
  findings::Names names;
  std::vector<findings::Fact> facts;
  std::map<std::tuple<Side, int, int>, int> memories;
  for (const Group& group : case_.groups) {
    std::size_t number = 0;
    for (const Request& request : group.requests)
      names.requests.emplace(request.generation, std::to_string(number++) + (request.transfer ? "" : " (not to be moved)"));
  }
  const auto memory_of = [&](const RegionRef& r) {
    const auto [at, added] = memories.try_emplace({r.side, r.group, r.rank}, static_cast<int>(names.memories.size()));
    if (!added) return at->second;
    const Group& group = case_.groups[static_cast<std::size_t>(r.group)];
    const bool producer = r.side == Side::producer;
    std::string name = producer ? "producer" : "consumer";
    if (case_.groups.size() > 1) name += " " + (group.name.empty() ? std::to_string(r.group) : group.name);
    if ((producer ? group.producer : group.consumer).ranks.size() > 1) name += " rank " + std::to_string(r.rank);
    names.memories.push_back(std::move(name));
    return at->second;
  };
  for (const Region& region : regions_) memory_of(region.arrived.region);
  for (const RegionRef& source : sources_) {
    names.regions.push_back(source.name);
    add_content(source, memory_of(source), static_cast<int>(names.regions.size()) - 1, facts);
  }
  for (const Region& region : regions_) {
    const RegionRef& r = region.arrived.region;
    names.regions.push_back(r.name);
    for (const Arrival& one : region.stretches) {
      findings::Fact fact;
      fact.memory = memory_of(r);
      fact.offset = one.at - region.base, fact.bytes = one.bytes;
      fact.wrong = one.wrong;
      fact.should = who_of(one.should);
      if (one.seat.kind == Kind::element) {
        if (fact.should.kind != findings::Who::Kind::element) {
          fact.should.at = coord_of(one.seat);
          fact.should.at[findings::Axis::request] = fact.should.at[findings::Axis::token] = findings::none;
        }
        fact.should.at[findings::Axis::block] = one.seat.block, fact.should.at[findings::Axis::slot] = one.seat.slot;
        fact.channels = std::max<std::int64_t>(1, one.bytes * 8 / one.bits);
      }
      fact.is = one.wrong ? who_of(one.did) : fact.should;
      fact.region = static_cast<int>(names.regions.size()) - 1;
      fact.from = one.home, fact.from_offset = one.home_offset;
      facts.push_back(std::move(fact));
    }
  }
  return findings::what_happened(facts, names);
}

}  // namespace kvcts::checker
