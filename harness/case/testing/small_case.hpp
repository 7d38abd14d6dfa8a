// Small resolved cases for tests of the processes: two layers, heterogeneous layouts, shuffled blocks.
#pragma once

#include <string>

#include "case/case.hpp"

namespace kvcts {

inline SideCache small_side(const std::string& text, const layout::Scheme& scheme, std::int64_t block_size,
                            std::int64_t blocks) {
  SideCache side{"(template)", text, scheme, {}};
  RankCache rank;
  rank.geometry = {.layers = 2, .blocks = blocks, .block_size = block_size, .heads = 2, .head_dim = 16};
  rank.truth = layout::instantiate(text, rank.geometry, scheme);
  rank.claim = rank.truth;
  side.ranks.push_back(std::move(rank));
  return side;
}

/// Engine "memcpy" has one process, every other engine two, unless `options` says otherwise.
inline ResolvedCase small_case(const std::string& id, const std::string& engine = "memcpy", int processes = 1,
                               const nlohmann::json& options = nlohmann::json::object()) {
  const layout::Scheme scheme{"bf16", layout::Dtype::bf16, {}, {}};
  ResolvedCase c;
  c.id = id;
  c.arch = "cpu";
  c.dtype = scheme.name;
  Group group;
  group.producer = small_side("L x K B N H C", scheme, 4, 8);
  group.consumer = small_side("L x B K H N C", scheme, 4, 8);
  group.requests.push_back({1, 10, true, {3, 0, 5}, {6, 2, 1}});
  c.groups.push_back(std::move(group));
  c.connector = {"reference", "reference", nlohmann::json::object()};
  c.engine = {engine, "kvcts_engine_" + engine, processes, options, nlohmann::json::object()};
  c.settle_ms = 50;
  return c;
}

}  // namespace kvcts
