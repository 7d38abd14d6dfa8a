// Visits every element that a request has in a region: for contents that are not tags. Plain and slow, because such
// cases are few.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "case/case.hpp"

namespace kvcts::checker {

/// One element of a token: its place in the region's memory file, and its identity.
struct CheckedElement {
  const layout::Plane* plane{};
  layout::Coord at;       ///< block and slot are those of the region's side
  std::int64_t token{0};  ///< position in its request
  const Request* request{};
  std::int64_t bit{0};  ///< from the start of the memory file
  int width{0};         ///< bits
};

/// Planes without blocks are visited once, with token 0 of the first request. `transferred`: only transferred requests.
void each_element(const ResolvedCase& resolved, const RegionRef& region, bool transferred,
                  const std::function<void(const CheckedElement&)>& visit);

std::uint32_t read_code(std::span<const std::uint8_t> file, std::int64_t bit, int width);
void write_code(std::span<std::uint8_t> file, std::int64_t bit, int width, std::uint32_t code);

}  // namespace kvcts::checker
