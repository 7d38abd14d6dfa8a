#include <algorithm>
#include <set>

#include "diagnose/sides/hypotheses.hpp"

namespace kvcts::diagnose {

namespace {

using layout::Axis;

// The scene's case with another consumer truth in group 0. Nothing if allocation sizes would differ.
bool with_consumer_text(const ResolvedCase& c, const std::string& text, ResolvedCase& out) {
  out = c;
  auto& side = out.groups.at(0).consumer;
  for (auto& rank : side.ranks) {
    try {
      const auto cache = layout::instantiate(text, rank.geometry, side.scheme);
      if (cache.allocations.size() != rank.truth.allocations.size()) return false;
      for (std::size_t a = 0; a < cache.allocations.size(); ++a) {
        if (cache.allocations[a].bytes != rank.truth.allocations[a].bytes) return false;
      }
      rank.truth = cache;
    } catch (const std::exception&) {
      return false;  // this order does not exist for the geometry
    }
  }
  side.text = text;
  return true;
}

bool same_truth(const ResolvedCase& a, const ResolvedCase& b) {
  for (std::size_t r = 0; r < a.groups[0].consumer.ranks.size(); ++r) {
    if (!layout::same_map(a.groups[0].consumer.ranks[r].truth, b.groups[0].consumer.ranks[r].truth)) return false;
  }
  return true;
}

// Letters of the first plane by stride: which axis sits where.
// Axes by falling stride. K and V may be planes of their own, in one allocation.
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
std::string letters(const SideCache& side) { return letters(side.ranks.at(0).truth); }

// K and V moved in the order (or to separate allocations): the more telling difference.
FaultClass class_of(const std::string& written, const std::string& declared) {
  const bool split = std::set<char>(written.begin(), written.end()).size() < written.size();  // an axis, in two places
  if (written == declared && !split) return FaultClass::wrong_stride;
  const auto k_rank = [](const std::string& s) {
    return s.find('K') == std::string::npos ? -1 : static_cast<int>(s.find('K') - std::min(s.find('B'), s.size()));
  };
  return (k_rank(written) < 0) != (k_rank(declared) < 0) ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted;
}

// Bytes arrived in the producer's own order: whole blocks moved unchanged between different layouts.
void moved_as_they_are(const Scene& scene, Proposals& out) {
  const auto& group = scene.truth.groups.at(0);
  ResolvedCase v;
  if (group.producer.text.empty() || !with_consumer_text(scene.truth, group.producer.text, v) || same_truth(scene.truth, v))
    return;
  const auto written = letters(v.groups[0].consumer), declared = letters(group.consumer);
  out.push_back({class_of(written, declared),
                 "blocks were moved as they are: written " + group.producer.layout + " (" + written + "), read as " +
                     group.consumer.layout + " (" + declared + ")",
                 std::move(v)});
}

// Template "L x K B N H C" with its body letters in every other order; nothing for texts that are no plain order.
std::vector<std::string> other_orders(const std::string& text) {
  std::vector<std::string> out;
  if (text.find_first_of("{}&;/%=:") != std::string::npos) return out;
  const auto cut = text.rfind(" x ");
  const std::string prefix = cut == std::string::npos ? "" : text.substr(0, cut + 3);
  std::string body;
  for (char c : text.substr(cut == std::string::npos ? 0 : cut + 3)) {
    if (layout::axis_from_letter(c)) body += c;
  }
  const std::string declared = body;
  std::sort(body.begin(), body.end());
  do {
    if (body == declared) continue;
    std::string spaced = prefix;
    for (char c : body) spaced += std::string(1, c) + " ";
    spaced.pop_back();
    out.push_back(spaced);
  } while (std::next_permutation(body.begin(), body.end()));
  return out;
}

Maps maps_of(const ResolvedCase& c, bool claims) {
  Maps maps;
  for (const auto& r : c.groups.at(0).producer.ranks) maps.producer.push_back(claims ? r.claim : r.truth);
  for (const auto& r : c.groups.at(0).consumer.ranks) maps.consumer.push_back(claims ? r.claim : r.truth);
  return maps;
}

/// The planes of one kind only.
layout::Cache only(const layout::Cache& cache, bool data) {
  layout::Cache out = cache;
  std::erase_if(out.planes, [&](const auto& p) { return (p.component == layout::Component::data) != data; });
  return out;
}

/// A claim that is right but for the scales: another place, or an order within groups of tokens.
FaultClass class_of_scales(const layout::Cache& is, const layout::Cache& told) {
  if (!layout::same_map(only(is, true), only(told, true))) return FaultClass::none;
  const auto in_groups = [](const layout::Cache& cache) {  // an axis in two places
    return std::ranges::any_of(only(cache, false).planes, [](const auto& plane) {
      std::set<Axis> axes;
      return std::ranges::any_of(plane.modes, [&](const auto& mode) { return !axes.insert(mode.axis).second; });
    });
  };
  return in_groups(is) != in_groups(told) ? FaultClass::scale_swizzle : FaultClass::scale_misplaced;
}

// The connector did as it was instructed, and its instructions were wrong.
void claims_believed(const Scene& scene, Proposals& out) {
  const auto& group = scene.truth.groups.at(0);
  FaultClass fault_class{};
  std::string words;
  for (const auto* side : {&group.producer, &group.consumer}) {
    const auto& rank = side->ranks.at(0);
    if (rank.claim.planes.empty() || layout::same_map(rank.claim, rank.truth)) continue;
    const auto is = letters(*side), told = letters(rank.claim);
    const std::string whose = side == &group.producer ? "producer" : "consumer";
    const FaultClass scales = class_of_scales(rank.truth, rank.claim);
    if (fault_class == FaultClass::none) fault_class = scales != FaultClass::none ? scales : class_of(is, told);
    words += words.empty() ? "" : "; ";
    if (scales != FaultClass::none) {
      words += "the scales of the " + whose + " do not lie where the claim has them";
      continue;
    }
    words += "the " + whose + " is " + is + " and was taken for " + (is == told ? "one with other steps" : told);
  }
  if (!words.empty()) out.push_back({fault_class, words, scene.truth, maps_of(scene.truth, true)});
}

// The producer's plain order read as another one.
void producer_in_another_order(const Scene& scene, Proposals& out) {
  const auto& side = scene.truth.groups.at(0).producer;
  for (const auto& text : other_orders(side.text)) {
    Variant v{FaultClass::none, "", scene.truth, maps_of(scene.truth, false)};
    bool fits = true;
    for (std::size_t r = 0; fits && r < side.ranks.size(); ++r) {
      try {
        v.maps->producer[r] = layout::instantiate(text, side.ranks[r].geometry, side.scheme);
      } catch (const std::exception&) {
        fits = false;
        break;
      }
      const auto &have = side.ranks[r].truth.allocations, &want = v.maps->producer[r].allocations;
      fits = have.size() == want.size() &&
             std::equal(have.begin(), have.end(), want.begin(), [](auto& a, auto& b) { return a.bytes == b.bytes; });
    }
    if (!fits || layout::same_map(v.maps->producer[0], side.ranks[0].truth)) continue;
    const auto is = letters(side), told = letters(v.maps->producer[0]);
    v.fault_class = class_of(is, told);
    v.words = "the producer is " + is + " and was read as " + told;
    out.push_back(std::move(v));
  }
}

void axes_in_another_order(const Scene& scene, Proposals& out) {
  const auto& side = scene.truth.groups.at(0).consumer;
  for (const auto& text : other_orders(side.text)) {
    ResolvedCase v;
    if (!with_consumer_text(scene.truth, text, v) || same_truth(scene.truth, v)) continue;
    const auto written = letters(v.groups[0].consumer), declared = letters(side);
    out.push_back({class_of(written, declared), "written " + written + ", declared " + declared, std::move(v)});
  }
}

// K where V should be and the reverse.
void kv_exchanged(const Scene& scene, Proposals& out) {
  Variant v{FaultClass::kv_split_vs_interleaved, "K and V are exchanged", scene.truth};
  bool any = false;
  for (auto& rank : v.transformed.groups.at(0).consumer.ranks) {
    if (rank.geometry.kv != 2) return;
    for (auto& plane : rank.truth.planes) {
      // digit d of a K/V mode means 1 - d; a plane of one of the two means the other.
      bool mode_found = false;
      for (auto& mode : plane.modes) {
        if (mode.axis != Axis::kv || mode.extent != 2) continue;
        plane.offset += mode.stride;
        mode.stride = -mode.stride;
        mode_found = true;
      }
      if (!mode_found) plane.origin[Axis::kv] = 1 - plane.origin[Axis::kv];
      any = true;
    }
  }
  if (any) out.push_back(std::move(v));
}

void other_block_ids(const Scene& scene, Proposals& out) {
  const auto propose = [&](const std::string& words, auto&& change) {
    Variant v{FaultClass::wrong_block_id, words, scene.truth};
    for (auto& request : v.transformed.groups.at(0).requests) change(request.consumer_blocks);
    if (v.transformed.groups[0].requests != scene.truth.groups[0].requests) out.push_back(std::move(v));
  };
  propose("the consumer's block list was taken in reverse", [](auto& ids) { std::reverse(ids.begin(), ids.end()); });
  propose("the consumer's block list was shifted by one place", [](auto& ids) {
    if (!ids.empty()) std::rotate(ids.begin(), ids.begin() + 1, ids.end());
  });
  propose("the consumer's block list was shifted by one place backwards", [](auto& ids) {
    if (!ids.empty()) std::rotate(ids.rbegin(), ids.rbegin() + 1, ids.rend());
  });
  propose("the consumer's block list was sorted", [](auto& ids) { std::sort(ids.begin(), ids.end()); });
  const std::int64_t pool = scene.truth.groups.at(0).consumer.ranks.at(0).geometry.blocks;
  for (std::int64_t shift : {1, -1}) {
    propose("every consumer block id is off by " + std::to_string(shift), [&](auto& ids) {
      for (auto& id : ids) id = std::clamp<std::int64_t>(id + shift, 0, pool - 1);
    });
  }
  propose("the producer's block ids were used on the consumer", [&, i = std::size_t{0}](auto& ids) mutable {
    const auto& p = scene.truth.groups[0].requests[i++].producer_blocks;
    if (std::all_of(p.begin(), p.end(), [&](auto id) { return id < pool; })) ids = p;
  });
}

// Only the first tokens (or whole blocks, or layers) arrived.
void cut_short(const Scene& scene, Proposals& out) {
  const auto& requests = scene.truth.groups.at(0).requests;
  if (requests.empty()) return;
  const std::int64_t size = scene.truth.groups[0].consumer.ranks.at(0).geometry.block_size;
  const std::int64_t longest =
      std::max_element(requests.begin(), requests.end(), [](auto& a, auto& b) { return a.tokens < b.tokens; })->tokens;
  const std::int64_t step = longest > 64 ? size : 1;
  for (std::int64_t tokens = longest - 1; tokens > 0; tokens -= step) {
    Variant v{FaultClass::truncated,
              "only the first " + std::to_string(tokens) + " of " + std::to_string(longest) + " tokens arrived",
              scene.truth};
    for (auto& r : v.transformed.groups[0].requests) r.tokens = std::min(r.tokens, tokens);
    out.push_back(std::move(v));
  }
}

// Another request's content under this request's blocks.
void another_generation(const Scene& scene, Proposals& out) {
  const auto& requests = scene.truth.groups.at(0).requests;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::size_t j = 0; j < requests.size(); ++j) {
      if (i == j || !requests[i].transfer || requests[i].generation == requests[j].generation) continue;
      Variant v{FaultClass::stale_block,
                "request " + std::to_string(i) + " holds generation " + std::to_string(requests[j].generation) +
                    " instead of " + std::to_string(requests[i].generation),
                scene.truth};
      v.transformed.groups[0].requests[i].generation = requests[j].generation;
      out.push_back(std::move(v));
    }
  }
}

}  // namespace

const std::vector<Hypothesis>& hypotheses() {
  static const std::vector<Hypothesis> table{
      source_changed,      claims_believed,          moved_as_they_are,        axes_in_another_order,
      kv_exchanged,        other_block_ids,          another_generation,       other_block_sizes,
      cut_short,           other_source_blocks,      another_axis_for_blocks,  scales_elsewhere,
      half_of_packed_rows, pieces_missing,           pieces_cut_or_long,       other_lengths,
      an_earlier_transfer, pieces_shifted,           narrow_offsets,           pieces_in_another_region,
      other_steps,         bytes_changed_on_the_way, producer_in_another_order};
  return table;
}

}  // namespace kvcts::diagnose
