#include "connector/reference.hpp"

#include <algorithm>

#include "connector/axis_offsets.hpp"
#include "connector/planner.hpp"

namespace kvcts::connector {

namespace {

// Heads are outside the slots of a block, so some heads' part of a block is one piece (HND).
bool heads_outside_slots(const layout::Plane& plane) {
  std::int64_t head = 0, slot = 0;
  for (const auto& m : plane.modes) {
    if (m.extent < 2) continue;
    if (m.axis == layout::Axis::head) head = std::max(head, std::abs(m.stride));
    if (m.axis == layout::Axis::slot) slot = std::max(slot, std::abs(m.stride));
  }
  return head == 0 || slot == 0 || head > slot;
}

SideView view_of(const SideCache& side, int first_region) {
  SideView view;
  for (const auto& rank : side.ranks) view.ranks.push_back(&rank.claim);
  view.block_size = side.ranks.at(0).geometry.block_size;
  view.first_region = first_region;
  return view;
}

int allocation_count(const SideCache& side) {
  int count = 0;
  for (const auto& rank : side.ranks) count += static_cast<int>(rank.claim.allocations.size());
  return count;
}

}  // namespace

Reference::Reference(const nlohmann::json& options) {
  static const std::set<std::string> known{"relayout", "block-size", "tp", "head-slice"};
  for (const auto& rule : options.value("refuse", nlohmann::json::array())) {
    const auto text = rule.get<std::string>();
    if (!known.contains(text)) {
      throw std::runtime_error("connector option refuse: expected relayout, block-size, tp or head-slice, found '" + text +
                               "'");
    }
    refuse_.insert(text);
  }
  whole_blocks_ = options.value("whole_blocks", false);
}

void Reference::register_caches(const ResolvedCase& view, Side side) {
  for (const auto& group : view.groups) {
    for (const auto& rank : (side == Side::producer ? group.producer : group.consumer).ranks) layout::validate(rank.claim);
  }
}

void Reference::check_rules(const Group& group) const {
  const auto& p = group.producer.ranks.at(0);
  const auto& c = group.consumer.ranks.at(0);
  if (refuse_.contains("block-size") && p.geometry.block_size != c.geometry.block_size) {
    throw Refusal("producer blocks hold " + std::to_string(p.geometry.block_size) + " tokens, consumer blocks " +
                  std::to_string(c.geometry.block_size) + "; this connector moves whole blocks: use equal block sizes");
  }
  const bool unequal_tp = group.producer.ranks.size() != group.consumer.ranks.size();
  if (refuse_.contains("tp") && unequal_tp) {
    throw Refusal("producer has " + std::to_string(group.producer.ranks.size()) + " ranks, consumer " +
                  std::to_string(group.consumer.ranks.size()) + "; this connector pairs ranks one to one: use equal TP");
  }
  if (refuse_.contains("relayout")) {
    for (const auto& a : p.claim.planes) {
      for (const auto& b : c.claim.planes) {
        if (a.component == b.component && a.origin == b.origin && inner_order(a) != inner_order(b)) {
          throw Refusal(
              "producer orders a block " + inner_order(a) + ", consumer " + inner_order(b) +
              "; this connector moves blocks as they are: use one layout on both sides or one that re-lays them out");
        }
      }
    }
  }
  if (refuse_.contains("head-slice") && unequal_tp) {
    const auto& wider = p.geometry.heads > c.geometry.heads ? p.claim : c.claim;
    for (const auto& plane : wider.planes) {
      if (!heads_outside_slots(plane)) {
        throw Refusal("a head slice of an " + inner_order(plane) +
                      " block is not contiguous, and this connector moves one piece per block and head range; use HND");
      }
    }
  }
}

Plan Reference::plan(const ResolvedCase& view, process::Progress progress) {
  Plan plan;
  int producer_region = 0, consumer_region = 0;
  for (const auto& group : view.groups) {
    check_rules(group);
    const auto producer = view_of(group.producer, producer_region), consumer = view_of(group.consumer, consumer_region);
    auto requests = group.requests;
    if (whole_blocks_) {
      for (auto& r : requests) {
        r.tokens = std::min(static_cast<std::int64_t>(r.producer_blocks.size()) * producer.block_size,
                            static_cast<std::int64_t>(r.consumer_blocks.size()) * consumer.block_size);
      }
    }
    plan_group(producer, consumer, requests, plan, progress);
    producer_region += allocation_count(group.producer);
    consumer_region += allocation_count(group.consumer);
  }
  finish(plan.copies);
  if (plan.relayout) plan.note = "the two sides order a block differently: bytes are re-laid out on the way";
  return plan;
}

}  // namespace kvcts::connector
