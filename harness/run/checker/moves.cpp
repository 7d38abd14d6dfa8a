#include "run/checker/moves.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>

#include "case/provenance.hpp"
#include "layout/layout.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

using layout::Axis;
using nlohmann::json;
using Kind = Provenance::Kind;

namespace {

constexpr std::size_t most = 96, in_front = 8, key_bytes = 16;
constexpr std::int64_t shortest = 4, chance = 4, looked_back = 1 << 16;
constexpr std::size_t most_searched = std::size_t{64} << 20;

/// An element of a region, and the number of bytes from here in which only the channel advances.
struct Spot {
  Provenance who;
  std::int64_t run{1};
};

std::optional<Spot> spot_at(const layout::Cache& cache, int allocation, std::int64_t offset, std::int64_t bytes) {
  if (offset < 0 || offset >= bytes) return std::nullopt;
  const auto found = layout::inverse(cache, allocation, offset * 8);
  if (found.empty()) return std::nullopt;
  const auto& plane = cache.planes[static_cast<std::size_t>(found.front().plane)];
  const auto& at = found.front().coord;
  Spot out;
  out.who.kind = Kind::element;
  if (plane.component != layout::Component::data) out.who.component = std::string(layout::name(plane.component));
  out.who.kv = at[Axis::kv], out.who.layer = at[Axis::layer], out.who.block = at[Axis::block], out.who.slot = at[Axis::slot],
  out.who.head = at[Axis::head];
  out.who.channel = out.who.last_channel = at[Axis::channel];
  const std::int64_t bits = layout::bits(plane.dtype);
  std::int64_t run = bits;
  for (const auto& m : plane.modes) {
    if (m.axis == Axis::channel && m.stride == bits)
      run = (m.extent - (at[Axis::channel] - plane.origin[Axis::channel]) / m.step % m.extent) * bits;
  }
  out.run = std::max<std::int64_t>(1, run / 8);
  return out;
}

class Lookup {
 public:
  Lookup(const ResolvedCase& c, const std::vector<std::span<const std::uint8_t>>& producer)
      : case_(c), producer_(producer), regions_(regions(c, Side::producer)) {}

  /// Registers a run of bytes whose origin is needed.
  void want(std::span<const std::uint8_t> run) { wanted_[key(run)][std::min(run.size(), key_bytes)] = {}; }

  /// Scans the producer's content once.
  void search() {
    std::vector<std::size_t> sizes;
    for (const auto& [k, by_size] : wanted_) {
      for (const auto& [size, homes] : by_size) sizes.push_back(size);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    for (std::size_t r = 0; r < regions_.size(); ++r) {
      const auto file = producer_[r];
      for (std::size_t i = 0; i + static_cast<std::size_t>(shortest) <= file.size(); ++i) {
        const auto at = wanted_.find(key(file.subspan(i)));
        if (at == wanted_.end()) continue;
        for (auto& [size, homes] : at->second) {
          if (i + size <= file.size() && homes.size() < 16) homes.push_back({r, i});
        }
      }
    }
  }

  /// The origin of a run; if there are several, the one that `should` names.
  Provenance home(std::span<const std::uint8_t> run, const Provenance& should) const {
    const auto at = wanted_.find(key(run));
    if (at == wanted_.end()) return {};
    const std::size_t size = std::min(run.size(), key_bytes);
    std::optional<Provenance> first;
    for (const auto& [r, i] : at->second.at(size)) {
      if (std::memcmp(producer_[r].data() + i, run.data(), size) != 0) continue;
      const Provenance who = at_home(r, i);
      if (who == should) return who;
      if (!first || first->kind != Kind::element) first = who;
    }
    return first.value_or(Provenance{});
  }

  /// What the producer has at one byte of its files.
  Provenance at_home(std::size_t r, std::size_t i) const {
    const RegionRef& region = regions_[r];
    const Group& group = case_.groups.at(static_cast<std::size_t>(region.group));
    const std::int64_t offset = static_cast<std::int64_t>(i) - oracle::file_shape(case_, region.bytes).base;
    const auto spot = spot_at(group.producer.ranks.at(static_cast<std::size_t>(region.rank)).truth, region.allocation,
                              offset, region.bytes);
    Provenance out;
    if (!spot) {
      out.kind = Kind::poison, out.region = region.name, out.offset = out.last_offset = offset;
      return out;
    }
    out = spot->who;
    out.rank = region.rank;
    for (const auto& b : oracle::content(group, Side::producer, false)) {
      if (b.block == out.block && out.slot >= b.first_slot && out.slot < b.first_slot + b.tokens)
        out.generation = b.generation;
    }
    return out;
  }

 private:
  static std::uint32_t key(std::span<const std::uint8_t> run) {
    std::uint32_t out = 0;
    std::memcpy(&out, run.data(), std::min<std::size_t>(sizeof out, run.size()));
    return out;
  }
  const ResolvedCase& case_;
  const std::vector<std::span<const std::uint8_t>>& producer_;
  std::vector<RegionRef> regions_;
  /// first four bytes -> size of the run -> origins that begin with them
  std::unordered_map<std::uint32_t, std::unordered_map<std::size_t, std::vector<std::pair<std::size_t, std::size_t>>>>
      wanted_;
};

Provenance said(const std::string& text) {
  Provenance out;
  out.kind = Kind::other, out.text = text;
  return out;
}

/// The place in the producer's pool of the content that belongs at a place of the consumer's.
Provenance source_of(const Group& group, const Provenance& at) {
  for (const auto& b : oracle::content(group, Side::consumer, true)) {
    if (b.block != at.block || at.slot < b.first_slot || at.slot >= b.first_slot + b.tokens) continue;
    const std::int64_t token = b.first_token + at.slot - b.first_slot;
    for (const Request& r : group.requests) {
      if (!r.transfer || r.generation != b.generation ||
          std::find(r.consumer_blocks.begin(), r.consumer_blocks.end(), at.block) == r.consumer_blocks.end())
        continue;
      const std::int64_t size = group.producer.ranks.front().geometry.block_size;
      if (static_cast<std::size_t>(token / size) >= r.producer_blocks.size()) continue;
      Provenance from = at;
      from.block = r.producer_blocks[static_cast<std::size_t>(token / size)], from.slot = token % size,
      from.generation = r.generation;
      for (std::size_t rank = 0; rank < group.producer.ranks.size(); ++rank) {
        const auto& g = group.producer.ranks[rank].geometry;
        if (at.head >= g.first_head && at.head < g.first_head + g.heads) {
          from.rank = static_cast<int>(rank);
          return from;
        }
      }
    }
  }
  return said("nothing: an unowned slot");
}

}  // namespace

bool drawable(const std::vector<std::span<const std::uint8_t>>& producer) {
  std::size_t searched = 0;
  for (const auto& file : producer) searched += file.size();
  return searched <= most_searched;
}

json moves_of(const ResolvedCase& resolved, const std::vector<std::span<const std::uint8_t>>& producer,
              const Arrived& region) {
  const auto first_wrong =
      std::mismatch(region.expected.begin(), region.expected.end(), region.found.begin()).first - region.expected.begin();
  if (static_cast<std::size_t>(first_wrong) == region.expected.size() || !drawable(producer)) return nullptr;
  const Group& group = resolved.groups.at(static_cast<std::size_t>(region.region.group));
  const auto& cache = group.consumer.ranks.at(static_cast<std::size_t>(region.region.rank)).truth;
  const std::int64_t base = oracle::file_shape(resolved, region.region.bytes).base,
                     end = static_cast<std::int64_t>(region.found.size());

  // Runs that hold content or are wrong.
  struct Run {
    std::int64_t at{0}, bytes{0};  ///< in the file
    Provenance should;
    bool wrong{false};
  };
  std::vector<Run> runs;
  std::size_t first = 0;
  bool seen = false;
  for (std::int64_t at = std::max<std::int64_t>(0, first_wrong - looked_back); at < end && runs.size() < first + most;) {
    const auto spot = spot_at(cache, region.region.allocation, at - base, region.region.bytes);
    // Outside the data: up to the last wrong byte; a byte in between may be equal by chance.
    std::int64_t bytes = 1;
    if (spot) bytes = std::min(spot->run, end - at);
    const auto slice = [&](std::span<const std::uint8_t> of) {
      return of.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes));
    };
    bool differs = !std::ranges::equal(slice(region.expected), slice(region.found));
    if (!spot && !differs && !runs.empty() && runs.back().wrong && runs.back().at + runs.back().bytes == at) {
      for (std::int64_t next = at + 1; next < std::min(end, at + chance) && !differs; ++next)
        differs = region.expected[static_cast<std::size_t>(next)] != region.found[static_cast<std::size_t>(next)];
    }
    if (!spot && !differs) {
      ++at;
      continue;
    }
    Provenance should = spot ? source_of(group, spot->who) : said("nothing: no data belongs here");
    if (should.kind == Kind::element || differs) {
      if (!spot && !runs.empty() && runs.back().at + runs.back().bytes == at && runs.back().should == should &&
          runs.back().wrong) {
        runs.back().bytes += bytes;
      } else {
        runs.push_back({at, bytes, std::move(should), differs});
      }
      if (!seen && at + bytes > first_wrong) seen = true, first = runs.size() - 1;
      if (!seen && runs.size() > 4 * in_front) runs.erase(runs.begin(), runs.end() - static_cast<std::ptrdiff_t>(in_front));
    }
    at += bytes;
  }
  const std::size_t begin = first > in_front ? first - in_front : 0, stop = std::min(runs.size(), begin + most);
  const auto bytes_of = [&](const Run& run) {
    return region.found.subspan(static_cast<std::size_t>(run.at), static_cast<std::size_t>(run.bytes));
  };
  Lookup lookup(resolved, producer);
  for (std::size_t i = begin; i < stop; ++i) {
    if (runs[i].wrong && runs[i].bytes >= shortest) lookup.want(bytes_of(runs[i]));
  }
  lookup.search();
  json moves = json::array();
  std::int64_t left = oracle::transfer_bytes(resolved).least;
  for (std::size_t i = begin; i < stop; ++i) {
    const Run& run = runs[i];
    Provenance did = run.should;
    if (run.wrong) {
      const auto before = region.before.subspan(static_cast<std::size_t>(run.at), static_cast<std::size_t>(run.bytes));
      if (std::ranges::equal(before, bytes_of(run)))
        did = said("what was there before");
      else if (run.bytes < shortest)
        did = said("too short to tell");
      else
        did = lookup.home(bytes_of(run), run.should);
    }
    left -= run.bytes;
    moves.push_back({{"region", region.region.name},
                     {"offset", run.at - base},
                     {"bytes", run.bytes},
                     {"should", place_json(run.should)},
                     {"did", place_json(did)}});
  }
  return {{"moves", moves}, {"moves_from", "bytes"}, {"bytes_left_out", std::max<std::int64_t>(0, left)}};
}

}  // namespace kvcts::checker
