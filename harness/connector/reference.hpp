// The suite's own connector: layouts in, exact plan out. Options: {refuse: [rule, ...]} makes it stricter:
//   relayout    pairs whose order within a block differs        block-size  unequal tokens per block
//   tp          unequal numbers of ranks                        head-slice  a head shard that is not contiguous in its block
// and whole_blocks: true moves a request's last block whole, as block movers do; default: only its tokens.
#pragma once

#include <set>
#include <string>

#include "connector/connector.hpp"

namespace kvcts::connector {

class Reference final : public Connector {
 public:
  explicit Reference(const nlohmann::json& options);  ///< throws std::runtime_error on an unknown rule
  void register_caches(const ResolvedCase& view, Side side) override;
  Plan plan(const ResolvedCase& view, process::Progress progress) override;

 private:
  void check_rules(const Group& group) const;
  std::set<std::string> refuse_;
  bool whole_blocks_{false};
};

}  // namespace kvcts::connector
