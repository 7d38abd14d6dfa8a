#include "cli/report/picture.hpp"

#include <algorithm>
#include <set>

#include "layout/layout.hpp"

namespace kvcts::report {
namespace {

using layout::Axis;
using layout::Coord;
using nlohmann::json;

constexpr std::size_t most_groups = 4, most_requests = 8, most_blocks = 64, most_regions = 4, most_planes = 8,
                      most_moves = 96;

json plane_json(const layout::Plane& plane) {
  // Loops from the outermost to the innermost, as memory has them.
  layout::Plane sorted = plane;
  std::stable_sort(sorted.modes.begin(), sorted.modes.end(),
                   [](const auto& a, const auto& b) { return a.stride > b.stride; });
  json modes = json::array(), origin = json::array();
  for (const auto& m : sorted.modes)
    if (m.extent != 1) modes.push_back({std::string(1, letter(m.axis)), m.extent, m.stride, m.step});
  for (const auto axis : layout::all_axes) origin.push_back(plane.origin[axis]);
  return {{"component", std::string(layout::name(plane.component))},
          {"dtype", std::string(layout::name(plane.dtype))},
          {"bits", layout::bits(plane.dtype)},
          {"at", plane.offset},
          {"origin", std::move(origin)},
          {"modes", std::move(modes)}};
}

// The first allocation of each kind ("kv", "k", "v", "scale") of one rank: the others look the same.
json regions_json(const layout::Cache& cache, const std::string& prefix) {
  json out = json::array();
  std::set<std::string> kinds;
  for (std::size_t a = 0; a < cache.allocations.size() && out.size() < most_regions; ++a) {
    const auto& allocation = cache.allocations[a];
    if (!kinds.insert(allocation.name.substr(0, allocation.name.find('.'))).second) continue;
    json planes = json::array();
    for (const auto& plane : cache.planes)
      if (plane.allocation == static_cast<int>(a) && planes.size() < most_planes) planes.push_back(plane_json(plane));
    out.push_back({{"name", prefix + allocation.name}, {"bytes", allocation.bytes}, {"planes", std::move(planes)}});
  }
  return out;
}

json side_json(const SideCache& side, const std::string& prefix) {
  const auto& rank = side.ranks.at(0);
  const auto& g = rank.geometry;
  json out{{"layout", side.layout},
           {"text", side.text},
           {"ranks", side.ranks.size()},
           {"layers", g.layers},
           {"blocks", g.blocks},
           {"block_size", g.block_size},
           {"heads", g.heads},
           {"head_dim", g.head_dim},
           {"allocations", rank.truth.allocations.size()},
           {"regions", regions_json(rank.truth, prefix)}};
  if (!layout::same_map(rank.claim, rank.truth)) out["claimed"] = regions_json(rank.claim, prefix);
  return out;
}

json blocks_json(const std::vector<std::int64_t>& blocks) {
  return std::vector<std::int64_t>(blocks.begin(),
                                   blocks.begin() + static_cast<std::ptrdiff_t>(std::min(blocks.size(), most_blocks)));
}

json group_json(const Group& group, std::size_t number) {
  json requests = json::array();
  for (const auto& r : group.requests) {
    if (requests.size() == most_requests) break;
    requests.push_back({{"generation", r.generation},
                        {"tokens", r.tokens},
                        {"moved", r.transfer},
                        {"from", blocks_json(r.producer_blocks)},
                        {"to", blocks_json(r.consumer_blocks)}});
  }
  const std::string tail = "/g" + std::to_string(number) + "/r0/";
  return {{"name", group.name},
          {"producer", side_json(group.producer, "producer" + tail)},
          {"consumer", side_json(group.consumer, "consumer" + tail)},
          {"requests", std::move(requests)},
          {"requests_left_out", group.requests.size() - requests.size()}};
}

// ---- moves -------------------------------------------------------------------------------------------------------------

/// A coordinate in the producer's pool. generation 0: a block that no request owns.
json place_json(int rank, const Coord& c, std::uint32_t generation) {
  return {rank, c[Axis::layer], c[Axis::kv], c[Axis::block], c[Axis::slot], c[Axis::head], c[Axis::channel], generation};
}

struct At {
  Coord coord;
  std::int64_t bits{0};  ///< up to where only the channel counts on
};

/// What lies at a byte of an allocation, as far as one row of channels goes. Nothing for padding and scales.
std::optional<At> at_byte(const layout::Cache& cache, int allocation, std::int64_t byte) {
  const auto elements = layout::inverse(cache, allocation, byte * 8);
  if (elements.empty()) return std::nullopt;
  const auto& plane = cache.planes[static_cast<std::size_t>(elements.front().plane)];
  if (plane.component != layout::Component::data) return std::nullopt;
  At out{elements.front().coord, layout::bits(plane.dtype)};
  for (const auto& m : plane.modes) {
    if (m.axis != Axis::channel || m.stride != layout::bits(plane.dtype)) continue;
    const std::int64_t digit = (out.coord[Axis::channel] - plane.origin[Axis::channel]) / m.step % m.extent;
    out.bits = (m.extent - digit) * m.stride;
  }
  return out;
}

struct Owner {
  const Request* request;
  std::size_t position;
};
std::optional<Owner> owner(const Group& group, bool producer, std::int64_t block) {
  for (const auto& r : group.requests) {
    const auto& list = producer ? r.producer_blocks : r.consumer_blocks;
    if (const auto it = std::find(list.begin(), list.end(), block); it != list.end())
      return Owner{&r, static_cast<std::size_t>(it - list.begin())};
  }
  return std::nullopt;
}

/// Which place of the producer's pool belongs at a place of the consumer's, or the words for why none does.
json source_of(const Group& group, const Coord& at) {
  const auto own = owner(group, false, at[Axis::block]);
  if (!own || !own->request->transfer) return "nothing: a free block";
  const std::int64_t token =
      static_cast<std::int64_t>(own->position) * group.consumer.ranks.at(0).geometry.block_size + at[Axis::slot];
  if (token >= own->request->tokens) return "nothing: beyond the last token";
  const auto& blocks = own->request->producer_blocks;
  const std::int64_t size = group.producer.ranks.at(0).geometry.block_size;
  if (static_cast<std::size_t>(token / size) >= blocks.size()) return "nothing: no block of the producer has it";
  Coord from = at;
  from[Axis::block] = blocks[static_cast<std::size_t>(token / size)];
  from[Axis::slot] = token % size;
  // The rank that holds the head (replicas: the first).
  for (std::size_t r = 0; r < group.producer.ranks.size(); ++r) {
    const auto& g = group.producer.ranks[r].geometry;
    if (at[Axis::head] >= g.first_head && at[Axis::head] < g.first_head + g.heads)
      return place_json(static_cast<int>(r), from, own->request->generation);
  }
  return "nothing: no rank of the producer has the head";
}

/// The copies of a plan, cut into runs within which both sides count on by channel only.
class Moves {
 public:
  Moves(const ResolvedCase& resolved, const json& sample)
      : resolved_(resolved), from_(regions(resolved, Side::producer)), to_(regions(resolved, Side::consumer)) {
    for (const auto& copy : sample) {
      if (!copy.is_array() || copy.size() != 5) continue;
      add({copy[0].get<int>(), copy[1].get<std::int64_t>(), copy[2].get<int>(), copy[3].get<std::int64_t>(),
           copy[4].get<std::int64_t>()});
    }
  }
  json list = json::array();

 private:
  void add(const Copy& copy) {
    const auto known = [](const std::vector<RegionRef>& all, int number) {
      return number >= 0 && static_cast<std::size_t>(number) < all.size();
    };
    if (!known(from_, copy.src) || !known(to_, copy.dst)) return;
    const RegionRef &source = from_[static_cast<std::size_t>(copy.src)], &target = to_[static_cast<std::size_t>(copy.dst)];
    const Group &source_group = resolved_.groups.at(static_cast<std::size_t>(source.group)),
                &target_group = resolved_.groups.at(static_cast<std::size_t>(target.group));
    const auto& source_cache = source_group.producer.ranks.at(static_cast<std::size_t>(source.rank)).truth;
    const auto& target_cache = target_group.consumer.ranks.at(static_cast<std::size_t>(target.rank)).truth;
    for (std::int64_t done = 0; done < copy.bytes;) {
      if (list.size() == most_moves) return;
      const auto inside = [](const RegionRef& region, std::int64_t byte) { return byte >= 0 && byte < region.bytes; };
      const std::int64_t from = copy.src_offset + done, to = copy.dst_offset + done;
      const auto here = inside(target, to) ? at_byte(target_cache, target.allocation, to) : std::nullopt;
      const auto there = inside(source, from) ? at_byte(source_cache, source.allocation, from) : std::nullopt;
      std::int64_t run = copy.bytes - done;
      if (here) run = std::min(run, std::max<std::int64_t>(1, here->bits / 8));
      if (there) run = std::min(run, std::max<std::int64_t>(1, there->bits / 8));
      if (!here && !there) run = std::min<std::int64_t>(run, 64);
      json did = "outside of the data";
      if (there) {
        const auto own = owner(source_group, true, there->coord[Axis::block]);
        did = place_json(source.rank, there->coord, own ? own->request->generation : 0);
      }
      list.push_back({{"region", target.name},
                      {"offset", to},
                      {"bytes", run},
                      {"should", here ? source_of(target_group, here->coord) : json("nothing: no data belongs here")},
                      {"did", std::move(did)}});
      done += run;
    }
  }

  const ResolvedCase& resolved_;
  std::vector<RegionRef> from_, to_;
};

}  // namespace

json picture(const ResolvedCase& resolved, const json& plan) {
  json out{{"groups", json::array()}};
  for (std::size_t g = 0; g < std::min(resolved.groups.size(), most_groups); ++g)
    out["groups"].push_back(group_json(resolved.groups[g], g));
  if (plan.is_object() && plan.contains("sample") && plan["sample"].is_array() && !plan.value("relayout", false)) {
    Moves moves(resolved, plan["sample"]);
    const auto all = plan.value("bytes", std::int64_t{0});
    std::int64_t shown = 0;
    for (const auto& m : moves.list) shown += m["bytes"].get<std::int64_t>();
    out["moves"] = std::move(moves.list);
    out["moves_from"] = "plan";
    out["bytes_left_out"] = std::max<std::int64_t>(0, all - shown);
  }
  return out;
}

json take_plan(CaseResult& result) {
  json plan;
  std::erase_if(result.evidence_files, [&](const EvidenceFile& file) {
    if (file.kind != "plan") return false;
    if (plan.is_null()) plan = json::parse(file.text, nullptr, false);
    return true;
  });
  return plan.is_object() ? plan : json();
}

bool has_picture(Outcome outcome) {
  return outcome == Outcome::fail || outcome == Outcome::refused || outcome == Outcome::hang || outcome == Outcome::crash;
}

void add_picture(const ResolvedCase& resolved, const json& plan, CaseResult& result) {
  if (!has_picture(result.outcome)) return;
  try {
    json drawn = picture(resolved, plan);
    if (result.picture.is_object()) drawn.update(result.picture);
    result.picture = std::move(drawn);
  } catch (const layout::Error&) {
    // A map that overlaps itself, as a case may declare: the result stands without a drawing.
  }
}

}  // namespace kvcts::report
