// A window of a plain case's region in words: diagnose::Arrivals, byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/provenance.hpp"

namespace kvcts::dump {

struct Window {
  std::string region;                ///< "consumer/g0/r0/kv.L0", or a unique tail of it ("kv.L0" of the consumer)
  std::int64_t offset{0}, bytes{0};  ///< from the allocation's start; guards are below 0 and beyond the end
};

/// The region that a name means; a tail that both sides have selects the consumer's. Throws std::runtime_error with the
/// existing names.
RegionRef region_of(const ResolvedCase& resolved, const std::string& name);

/// `found`: the window's bytes after pass 0; empty: before the transfer. Throws std::runtime_error when the region has no
/// such bytes, or the case is too large.
std::vector<ComparedRange> read_window(const ResolvedCase& resolved, const Window& window,
                                       const std::vector<std::uint8_t>& found);

}  // namespace kvcts::dump
