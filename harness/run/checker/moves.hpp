// Where the arrived bytes came from, for a drawing: runs of the destination around the first wrong byte, each looked
// up in the producer's memory.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "case/case.hpp"

namespace kvcts::checker {

/// A consumer region before, expected and found: whole files, guards included.
struct Arrived {
  RegionRef region;
  std::span<const std::uint8_t> before, expected, found;
};

/// Whether the producer is small enough to search for a drawing.
bool drawable(const std::vector<std::span<const std::uint8_t>>& producer);
/// `moves`, `moves_from`, `bytes_left_out` of `$defs/picture`; null if no byte is wrong, or the producer is too large
/// to search. A run is contiguous along channels. It is identified by its first 16 bytes in one pass, so a wrong run
/// of less than 4 bytes stays unidentified. `producer`: whole files in the order of regions(producer).
nlohmann::json moves_of(const ResolvedCase& resolved, const std::vector<std::span<const std::uint8_t>>& producer,
                        const Arrived& arrived);

}  // namespace kvcts::checker
