// Which content belongs where, by the blocks of a group's requests.
#pragma once

#include <unordered_map>
#include <vector>

#include "case/case.hpp"
#include "case/provenance.hpp"
#include "kernels/generate.hpp"

namespace kvcts::diagnose {

/// The tokens of a group's blocks, by block.
class Owners {
 public:
  Owners(const Group& group, Side side, bool transferred_only);
  /// Fills generation and token of an element by its place. False: the slot is unowned.
  bool own(Provenance& at) const;
  bool has_block(std::int64_t block) const { return blocks_.contains(block); }
  /// The place in the producer's pool of the content that belongs at a place of the consumer's; else nothing().
  Provenance source_of(const Provenance& at) const;
  /// An unowned slot.
  static Provenance nothing();

 private:
  const Group& group_;
  std::unordered_map<std::int64_t, std::vector<kernels::BlockContent>> blocks_;
  std::unordered_map<std::int64_t, std::vector<const Request*>> moved_to_;  ///< by block of the consumer
};

}  // namespace kvcts::diagnose
