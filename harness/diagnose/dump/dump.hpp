// A window of a plain case's region in words. The code under test is run several times, each time with other content in the
// same places, so that the bytes at one place over all runs belong to one element, or to one byte of poison: that is who is
// there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/provenance.hpp"

namespace kvcts::dump {

/// Runs of a case that name its bytes: 8 bits each, so that 10^6 bytes collide with p < 2^-40.
inline constexpr int runs = 10;
/// Bytes of all regions together; each costs memory of its own here.
inline constexpr std::int64_t most_bytes = std::int64_t{256} << 20;

struct Window {
  std::string region;                ///< "consumer/g0/r0/kv.L0", or its only tail ("kv.L0" of the consumer)
  std::int64_t offset{0}, bytes{0};  ///< from the allocation's start; guards are below 0 and behind the end
};

/// The case with the content of run i: same places, other tags and poison.
ResolvedCase run_of(const ResolvedCase& resolved, int i);

/// The region that a name means; a tail that both sides have is the consumer's. Throws std::runtime_error with the names
/// there are.
RegionRef region_of(const ResolvedCase& resolved, const std::string& name);

/// `found[i]`: the window's bytes after run i; empty: as they were before the transfer. Throws std::runtime_error where the
/// region has no such bytes, or the case is too large.
std::vector<Stretch> look(const ResolvedCase& resolved, const Window& window,
                          const std::vector<std::vector<std::uint8_t>>& found);

}  // namespace kvcts::dump
