// Which bytes are wrong, and what a hypothesis says of single bytes: its cost depends on what is wrong, not on the size of
// the tensors. Internal to verify().
#pragma once

#include <array>
#include <optional>
#include <set>
#include <vector>

#include "python/probe/verify.hpp"

namespace kvcts::probe {

struct Damage {
  struct Place {
    int allocation;
    std::int64_t offset;
    std::vector<layout::Element> elements;  ///< empty: padding
  };
  std::int64_t bytes{0};          ///< that are wrong, open tails apart
  std::vector<int> allocations;   ///< that have some
  std::set<std::int64_t> blocks;  ///< that have some; where too much is wrong, also every block of no request
  std::vector<Place> first;       ///< the first wrong byte of up to eight rows
  /// Rows with wrong bytes, by their channel 0; nullopt: too many to list.
  std::optional<std::set<std::array<std::int64_t, layout::axis_count>>> rows;
};

/// One pass over the tensors. `blocks`: of the requests.
Damage damage_of(const Question& question, const std::vector<kernels::BlockContent>& blocks);

/// Whether verify() leaves this slot open: beyond the tokens of a request, in its last block.
bool open_tail(const Question& question, const layout::Coord& at);
/// Slots of the requests' last blocks beyond their tokens, as whole bytes of one allocation.
std::vector<layout::ByteRange> tails(const Question& question, const layout::Cache& cache, int allocation);

/// A byte of the allocation if `cache` were its map and `blocks` its content; nullopt: it may hold anything.
std::optional<std::uint8_t> predicted(const Question& question, const layout::Cache& cache,
                                      const std::vector<kernels::BlockContent>& blocks, int allocation, std::int64_t byte);

}  // namespace kvcts::probe
