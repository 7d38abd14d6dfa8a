// Which bytes are wrong, and what single bytes should be. Internal to verify().
#pragma once

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
  std::set<std::int64_t> blocks;  ///< that have some; where too much is wrong, also every block of no request
  std::vector<Place> first;       ///< the first wrong byte of up to eight rows
};

/// One pass over the tensors. `blocks`: of the requests.
Damage damage_of(const Question& question, const std::vector<kernels::BlockContent>& blocks);

/// Whether verify() leaves this slot open: beyond the tokens of a request, in its last block.
bool open_tail(const Question& question, const layout::Coord& at);
/// Slots of the requests' last blocks beyond their tokens, as whole bytes of one allocation.
std::vector<layout::ByteRange> tails(const Question& question, const layout::Cache& cache, int allocation);

/// What a byte of the allocation should be; nullopt: it may hold anything.
std::optional<std::uint8_t> expected(const Question& question, const std::vector<kernels::BlockContent>& blocks,
                                     int allocation, std::int64_t byte);

}  // namespace kvcts::probe
