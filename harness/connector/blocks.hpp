// Models today's connectors that move blocks as bytes: dim 0 of every tensor is the block, and its content is ignored.
// Options:
//   refuse: [order, blocks, ranks]   what it does check: the tensors' axis order; their number of blocks against the pool's;
//                                    unequal numbers of ranks
//   heads_apart: true                unequal numbers of ranks only where the heads of a block are separate (HND)
//   at: {order: file:line, ...}      where its code says so, for the refusal's text
// It serves unequal numbers of ranks by contiguous pieces of a block, as if heads were outermost in it: right for HND,
// wrong for NHD. The first replica of a head sends. A block that is not one stretch of bytes is registered head by head.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "connector/connector.hpp"

namespace kvcts::connector {

class Blocks final : public Connector {
 public:
  explicit Blocks(const nlohmann::json& options);  ///< throws std::runtime_error on an unknown rule
  void register_caches(const ResolvedCase& view, Side side) override;
  Plan plan(const ResolvedCase& view, process::Progress progress) override;

 private:
  /// Bytes of one region that this connector owns: blocks of `length` bytes, `stride` apart.
  struct Region {
    int allocation{0};
    std::int64_t offset{0}, stride{0}, length{0};
  };
  std::vector<Region> regions_of(const RankCache& rank, int first_allocation) const;
  void check_pair(const Group& group) const;
  std::string at(const std::string& rule) const;

  std::set<std::string> refuse_;
  std::map<std::string, std::string> at_;
  bool heads_apart_{false};
};

}  // namespace kvcts::connector
