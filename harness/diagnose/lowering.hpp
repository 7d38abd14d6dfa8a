// A case with two sides, told step by step: the scenario that a right transfer performs. One diagnosis serves both.
#pragma once

#include <string>

#include "case/case.hpp"
#include "diagnose/crop.hpp"

namespace kvcts::diagnose {

/// Each request is written to each rank of the producer, then moved to each rank of the consumer, then read by the case's
/// reader. A rank is one memory.
scenario::Scenario lower(const ResolvedCase& resolved, const Crop& crop = {});
/// Of a rank, as scenarios and findings call it: "producer", "consumer rank 1".
std::string memory_name(const ResolvedCase& resolved, Side side, int group, int rank);
/// Of a region, in that scenario. Group -1: what the reader gathered of a request.
std::string place_name(const ResolvedCase& resolved, const RegionRef& region, std::size_t request = 0);

}  // namespace kvcts::diagnose
