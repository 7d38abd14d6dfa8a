// check() without its way out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/image.hpp"
#include "kernels/intervals.hpp"
#include "kernels/sinks.hpp"

namespace kvcts::kernels {

/// Planes that share no byte. nullopt where a plane's codes cannot be looked at byte by byte (see check()). `covered`: gets the bytes that were looked at,
/// or null.
std::optional<Differences> check_in_place(std::span<const std::uint8_t> allocation, std::span<const Tagged> tagged,
                                          std::size_t limit, int threads, Intervals* covered);

}  // namespace kvcts::kernels
