// What a worker looks at when completion is reported: first what an engine writes last.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "case/case.hpp"
#include "process/snapshot.hpp"

namespace kvcts::worker {

/// An allocation of the destination as it is mapped here.
struct Destination {
  std::uint32_t file{0};             ///< its number among the case's files
  const std::uint8_t* map{nullptr};  ///< the whole memory file
  std::int64_t base{0}, bytes{0};    ///< where the allocation lies in it
};

/// Of a plan: the last bytes of copies, the last copy first, then the end of the last ones as a whole. Microseconds,
/// whatever the plan.
void look(process::SnapshotWriter& snapshot, std::span<const Destination> destination, const std::vector<Copy>& copies);

/// Where nobody here knows what is written: everything, the end first; of more than fits, pieces at equal distances.
void look(process::SnapshotWriter& snapshot, std::span<const Destination> destination);

}  // namespace kvcts::worker
