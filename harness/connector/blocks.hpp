// A connector of today that moves blocks as bytes: dim 0 of every tensor is the block, what is inside is not looked at.
// Options:
//   refuse: [order, blocks, ranks]   what it does look at: the axis order of the tensors; the number of blocks against the
//   pool's; unequal
//                                    numbers of ranks
//   heads_apart: true                unequal numbers of ranks only where the heads of a block lie apart (HND)
//   at: {order: file:line, ...}      where its code says so; for the words of the refusal
// Unequal numbers of ranks are served by contiguous pieces of a block, as if heads were outermost in it: right for HND,
// wrong for NHD. Where the heads are replicated, the first replica sends. A block that is no one stretch of bytes is
// registered head by head.
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
  /// Bytes of one region of the connector's own: blocks of `length` bytes, `stride` apart.
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
