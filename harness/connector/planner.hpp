// Plans any pair of caches: other orders, block sizes, head shards, several layers and groups, partial blocks.
#pragma once

#include <functional>
#include <vector>

#include "connector/connector.hpp"

namespace kvcts::connector {

/// What plan_group() looks at of one side: one cache a rank, tokens of a block, and the number of the first region.
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

/// join(), then bits to bytes. A run that begins or ends inside a byte takes the whole byte along where the other half is
/// nobody else's in this plan and both sides have it in the same half. Throws Refusal where codes would have to change
/// halves.
void finish(std::vector<Copy>& copies);

/// Axes within a block from outermost to innermost by stride ("NHC", "HNC", "HCNC"): what has to agree for whole blocks to
/// be moved.
std::string inner_order(const layout::Plane& plane);

}  // namespace kvcts::connector
