// Checks descriptor ranges against the regions that they name, so that all engines refuse them with the same text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engines/support/failure.hpp"
#include "engines/transport/kvcts_transport.h"

namespace kvcts::engines {

inline bool inside(std::uint64_t offset, std::uint64_t bytes, std::uint64_t extent) {
  return offset <= extent && bytes <= extent - offset;
}

/// `extent`: bytes of the local region. Throws KVCTS_E_NOT_FOUND.
inline void check_local(const kvcts_descriptor& d, std::uint64_t index, std::uint64_t extent) {
  if (inside(d.local_offset, d.bytes, extent)) return;
  throw Failure{KVCTS_E_NOT_FOUND, "descriptor " + std::to_string(index) + ": the local range is outside of its region"};
}

/// Checks a range of a region (with `bytes` and `access`) for a peer's write or read. Throws KVCTS_E_NOT_FOUND if it
/// leaves the region, KVCTS_E_NOT_PERMITTED if the region lacks that access.
template <class Region>
void check_remote(const Region& region, std::uint64_t index, std::uint64_t offset, std::uint64_t bytes, bool writes) {
  const auto refuse = [index](std::int32_t status, const std::string& why) {
    return Failure{status, "descriptor " + std::to_string(index) + ": " + why};
  };
  if (!inside(offset, bytes, region.bytes)) throw refuse(KVCTS_E_NOT_FOUND, "the remote range is outside of its region");
  if ((region.access & (writes ? KVCTS_ACCESS_REMOTE_WRITE : KVCTS_ACCESS_REMOTE_READ)) == 0) {
    throw refuse(KVCTS_E_NOT_PERMITTED, "the peer registered the region without this access");
  }
}

/// The peer's region. Throws KVCTS_E_NOT_FOUND if there is none; with `guard`, also throws like check_remote().
template <class Region>
const Region& remote_region(const std::vector<Region>& regions, const kvcts_descriptor& d, std::uint64_t index, bool writes,
                            bool guard = true) {
  if (d.remote_region >= regions.size()) {
    throw Failure{KVCTS_E_NOT_FOUND,
                  "descriptor " + std::to_string(index) + ": the peer has no region " + std::to_string(d.remote_region)};
  }
  const Region& region = regions[d.remote_region];
  if (guard) check_remote(region, index, d.remote_offset, d.bytes, writes);
  return region;
}

}  // namespace kvcts::engines
