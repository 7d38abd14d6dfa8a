// Plans any pair of caches: other orders, block sizes, head shards, several layers and groups, partial blocks.
#pragma once

#include <functional>
#include <vector>

#include "connector/connector.hpp"

namespace kvcts::connector {

/// One side as plan_group() sees it: one cache per rank, tokens per block, and the number of the first region.
struct SideView {
  std::vector<const layout::Cache*> ranks;
  std::int64_t block_size{0};
  int first_region{0};
};

/// Copies for one group: for every element that a consumer plane holds of a transferred token, the bits of the first
/// producer rank that has it. Only valid tokens move. Appends to `plan` copies whose offsets and lengths are in *bits*: call
/// finish() at the end. Throws Refusal: an element that no producer rank has, another dtype, another nibble order.
void plan_group(const SideView& producer, const SideView& consumer, const std::vector<Request>& requests, Plan& plan,
                process::Progress& progress);

/// Sorts by destination and joins copies that continue each other on both sides. Any unit.
void join(std::vector<Copy>& copies);

/// join(), then bits to bytes. A run that begins or ends inside a byte moves the whole byte if nothing else in this plan
/// uses the other half and both sides have it in the same half. Throws Refusal when codes would have to change halves.
void finish(std::vector<Copy>& copies);

/// Axes within a block from outermost to innermost by stride ("NHC", "HNC", "HCNC"): both sides must agree for whole blocks
/// to move.
std::string inner_order(const layout::Plane& plane);

}  // namespace kvcts::connector
