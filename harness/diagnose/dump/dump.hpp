// A window of a plain case's region in words. Runs the code under test several times with other content in the same places;
// the bytes at one place over all runs then identify one element, or one byte of poison.
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
/// Limit on the bytes of all regions together; each costs memory here.
inline constexpr std::int64_t most_bytes = std::int64_t{256} << 20;

struct Window {
  std::string region;                ///< "consumer/g0/r0/kv.L0", or a unique tail of it ("kv.L0" of the consumer)
  std::int64_t offset{0}, bytes{0};  ///< from the allocation's start; guards are below 0 and beyond the end
};

/// The case with the content of run i: same places, other tags and poison.
ResolvedCase run_of(const ResolvedCase& resolved, int i);

/// The region that a name means; a tail that both sides have selects the consumer's. Throws std::runtime_error with the
/// existing names.
RegionRef region_of(const ResolvedCase& resolved, const std::string& name);

/// `found[i]`: the window's bytes after run i; empty: unchanged since before the transfer. Throws std::runtime_error when
/// the region has no such bytes, or the case is too large.
std::vector<Stretch> look(const ResolvedCase& resolved, const Window& window,
                          const std::vector<std::vector<std::uint8_t>>& found);

}  // namespace kvcts::dump
