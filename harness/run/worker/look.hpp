// What a worker reads when completion is reported: what an engine writes last comes first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "case/case.hpp"
#include "process/snapshot.hpp"

namespace kvcts::worker {

/// An allocation of the destination as mapped here.
struct Destination {
  std::uint32_t file{0};             ///< its number among the case's files
  const std::uint8_t* map{nullptr};  ///< the whole memory file
  std::int64_t base{0}, bytes{0};    ///< where the allocation lies in it
};

/// With a plan: the last bytes of copies, last copy first, then the end of the last copies completely. Takes
/// microseconds for any plan.
void look(process::SnapshotWriter& snapshot, std::span<const Destination> destination, const std::vector<Copy>& copies);

/// Without a plan: everything, the end first; if it does not fit, pieces at equal distances.
void look(process::SnapshotWriter& snapshot, std::span<const Destination> destination);

}  // namespace kvcts::worker
