// Where the bytes that arrived came from, for a drawing: runs of the destination around the first wrong byte, each looked up
// in what the producer holds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "case/case.hpp"

namespace kvcts::checker {

/// A consumer region as it was, as it must be and as it is: whole files, guards included.
struct Arrived {
  RegionRef region;
  std::span<const std::uint8_t> before, expected, found;
};

/// Whether the producer is small enough to be searched for a drawing.
bool drawable(const std::vector<std::span<const std::uint8_t>>& producer);
/// `moves`, `moves_from`, `bytes_left_out` of `$defs/picture`; null where no byte is wrong, or the producer is too large to
/// be searched. A run is what lies together along channels. It is known by its own first 16 bytes in one pass, so a wrong
/// run of less than 4 bytes has no name. `producer`: whole files in the order of regions(producer).
nlohmann::json moves_of(const ResolvedCase& resolved, const std::vector<std::span<const std::uint8_t>>& producer,
                        const Arrived& arrived);

}  // namespace kvcts::checker
