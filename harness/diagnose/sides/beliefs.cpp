// Faults of code that plans: another list of blocks, another step, another length, another block size. Each is the right
// plan made from one wrong belief, predicted by moving the tokens through the resulting maps and requests.
#include <algorithm>
#include <numeric>
#include <set>

#include "diagnose/sides/hypotheses.hpp"

namespace kvcts::diagnose {

using layout::Axis;
using layout::Component;

namespace {

Maps true_maps(const ResolvedCase& c) {
  Maps maps;
  for (const auto& r : c.groups.at(0).producer.ranks) maps.producer.push_back(r.truth);
  for (const auto& r : c.groups.at(0).consumer.ranks) maps.consumer.push_back(r.truth);
  return maps;
}

Variant believed(const Scene& scene, FaultClass fault_class, std::string words) {
  return {fault_class, std::move(words), scene.truth, true_maps(scene.truth)};
}

}  // namespace

void other_source_blocks(const Scene& scene, Proposals& out) {
  const std::int64_t pool = scene.truth.groups.at(0).producer.ranks.at(0).geometry.blocks;
  const auto propose = [&](const std::string& words, auto&& change) {
    Variant v = believed(scene, FaultClass::wrong_block_id, words);
    bool valid = true;
    for (auto& r : v.transformed.groups[0].requests) {
      if (!r.transfer || r.producer_blocks.empty()) continue;
      change(r);
      valid = valid &&
              std::all_of(r.producer_blocks.begin(), r.producer_blocks.end(), [&](auto id) { return id >= 0 && id < pool; });
    }
    if (valid && v.transformed.groups[0].requests != scene.truth.groups[0].requests) out.push_back(std::move(v));
  };
  propose("the producer's block list was taken in reverse",
          [](Request& r) { std::reverse(r.producer_blocks.begin(), r.producer_blocks.end()); });
  propose("the producer's block list was sorted",
          [](Request& r) { std::sort(r.producer_blocks.begin(), r.producer_blocks.end()); });
  propose("the producer's first block and those that follow it were read, not the list", [&](Request& r) {
    for (std::size_t i = 1; i < r.producer_blocks.size(); ++i)
      r.producer_blocks[i] = (r.producer_blocks[0] + static_cast<std::int64_t>(i)) % pool;
  });
  for (const std::int64_t shift : {1, -1}) {
    propose("every producer block id is off by " + std::to_string(shift), [&](Request& r) {
      for (auto& id : r.producer_blocks) id = std::clamp<std::int64_t>(id + shift, 0, pool - 1);
    });
  }
  propose("every block was read from the first id of the producer's list",
          [](Request& r) { std::fill(r.producer_blocks.begin(), r.producer_blocks.end(), r.producer_blocks[0]); });
  propose("the consumer's block ids were used on the producer", [](Request& r) {
    if (r.consumer_blocks.size() == r.producer_blocks.size()) r.producer_blocks = r.consumer_blocks;
  });
  propose("blocks were read that the request does not own", [&](Request& r) {
    const std::set<std::int64_t> ours(r.producer_blocks.begin(), r.producer_blocks.end());
    std::vector<std::int64_t> free;
    for (std::int64_t id = 0; id < pool; ++id) {
      if (!ours.contains(id)) free.push_back(id);
    }
    for (std::size_t i = 0; i < r.producer_blocks.size() && !free.empty(); ++i) r.producer_blocks[i] = free[i % free.size()];
  });
}

// The step of one axis halved or doubled: a factor of K and V, of packing, of an element's width, lost or applied twice.
void other_steps(const Scene& scene, Proposals& out) {
  for (const auto axis : {Axis::block, Axis::slot, Axis::head}) {
    for (const bool half : {true, false}) {
      for (const bool producer : {true, false}) {
        Variant v = believed(scene, FaultClass::wrong_stride,
                             std::string("the step between ") +
                                 (axis == Axis::block  ? "blocks"
                                  : axis == Axis::slot ? "tokens"
                                                       : "heads") +
                                 " of the " + (producer ? "producer" : "consumer") + " is " + (half ? "half of" : "twice") +
                                 " what it should be");
        for (auto& cache : producer ? v.maps->producer : v.maps->consumer) {
          for (auto& plane : cache.planes) {
            for (auto& mode : plane.modes) {
              if (mode.axis == axis && plane.component == Component::data)
                mode.stride = half ? mode.stride / 2 : mode.stride * 2;
            }
          }
        }
        out.push_back(std::move(v));
      }
    }
  }
}

// More tokens than the request has, within its blocks.
void other_lengths(const Scene& scene, Proposals& out) {
  const auto& group = scene.truth.groups.at(0);
  const std::int64_t p = group.producer.ranks.at(0).geometry.block_size, c = group.consumer.ranks.at(0).geometry.block_size;
  for (std::size_t i = 0; i < group.requests.size(); ++i) {
    const auto& r = group.requests[i];
    if (!r.transfer) continue;
    const std::int64_t room = std::min(static_cast<std::int64_t>(r.producer_blocks.size()) * p,
                                       static_cast<std::int64_t>(r.consumer_blocks.size()) * c);
    for (std::int64_t tokens = r.tokens + 1; tokens <= std::min(room, r.tokens + 16); ++tokens) {
      Variant v = believed(scene, FaultClass::over_read,
                           std::to_string(tokens) + " tokens were moved where " + std::to_string(r.tokens) + " are valid");
      v.transformed.groups[0].requests[i].tokens = tokens;
      out.push_back(std::move(v));
    }
  }
}

void other_block_sizes(const Scene& scene, Proposals& out) {
  const auto& group = scene.truth.groups.at(0);
  const std::int64_t p = group.producer.ranks.at(0).geometry.block_size, c = group.consumer.ranks.at(0).geometry.block_size;
  if (p == c) return;
  Variant v = believed(scene, FaultClass::wrong_block_size,
                       "block i went to block i although the producer's hold " + std::to_string(p) +
                           " tokens and the consumer's " + std::to_string(c));
  auto& g = v.transformed.groups[0];
  for (auto* side : {&g.producer, &g.consumer}) {
    for (auto& rank : side->ranks) rank.geometry.block_size = std::min(p, c);
  }
  for (auto& r : g.requests) {
    r.tokens = std::min(
        r.tokens, std::min(p, c) * static_cast<std::int64_t>(std::min(r.producer_blocks.size(), r.consumer_blocks.size())));
  }
  out.push_back(std::move(v));
}

void scales_elsewhere(const Scene& scene, Proposals& out) {
  const auto propose = [&](const std::string& words, Component component, auto&& change) {
    for (const bool producer : {true, false}) {
      Variant v = believed(scene, component == Component::data ? FaultClass::none : FaultClass::scale_misplaced,
                           words + (producer ? " on the producer" : " on the consumer"));
      bool any = false;
      for (auto& cache : producer ? v.maps->producer : v.maps->consumer) {
        for (auto& plane : cache.planes) {
          if (plane.component == component) any = change(plane) || any;
        }
      }
      if (any) out.push_back(std::move(v));
    }
  };
  for (const auto axis : {Axis::slot, Axis::head, Axis::channel}) {
    propose("scales were taken from the other end of their " + std::string(axis == Axis::slot   ? "block"
                                                                           : axis == Axis::head ? "heads"
                                                                                                : "row"),
            Component::scale, [&](layout::Plane& plane) {
              bool any = false;
              for (auto& mode : plane.modes) {
                if (mode.axis != axis || mode.extent < 2) continue;
                plane.offset += mode.stride * (mode.extent - 1);
                mode.stride = -mode.stride;
                any = true;
              }
              return any;
            });
  }
  // Not moved at all.
  Variant v = believed(scene, FaultClass::scale_lost, "the scales were not moved, the codes were");
  bool any = false;
  for (auto& cache : v.maps->consumer)
    any = std::erase_if(cache.planes, [](const layout::Plane& p) { return p.component != Component::data; }) > 0 || any;
  if (any) out.push_back(std::move(v));
}

void half_of_packed_rows(const Scene& scene, Proposals& out) {
  Variant v = believed(scene, FaultClass::packed_dim_misread,
                       "half of each row was moved: an extent of packed codes taken for one of bytes");
  bool any = false;
  for (auto& cache : v.maps->consumer) {
    for (auto& plane : cache.planes) {
      if (layout::bits(plane.dtype) >= 8) continue;
      for (auto& mode : plane.modes) {
        if (mode.axis != Axis::channel || mode.stride != layout::bits(plane.dtype)) continue;
        mode.extent /= 2;
        any = true;
      }
    }
  }
  if (any) out.push_back(std::move(v));
}

}  // namespace kvcts::diagnose
