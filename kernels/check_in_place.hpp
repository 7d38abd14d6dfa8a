// The parts of check() for an image.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/image.hpp"
#include "kernels/intervals.hpp"
#include "kernels/sinks.hpp"

namespace kvcts::kernels {

/// Planes that share no byte. nullopt where a plane's codes cannot be checked byte by byte (see check()). `covered`:
/// receives the checked bytes, or null.
std::optional<Differences> check_in_place(std::span<const std::uint8_t> allocation, std::span<const Tagged> tagged,
                                          std::size_t limit, int threads, Intervals* covered);

/// Poison in many ranges of a whole memory file.
Differences check_poison(std::uint64_t key, std::span<const std::uint8_t> file, std::span<const Interval> places,
                         std::size_t limit);

}  // namespace kvcts::kernels
