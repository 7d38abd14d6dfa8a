// What check() of an image is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/image.hpp"
#include "kernels/intervals.hpp"
#include "kernels/sinks.hpp"

namespace kvcts::kernels {

/// Planes that share no byte. nullopt where a plane's codes cannot be looked at byte by byte (see check()). `covered`: gets
/// the bytes that were looked at, or null.
std::optional<Differences> check_in_place(std::span<const std::uint8_t> allocation, std::span<const Tagged> tagged,
                                          std::size_t limit, int threads, Intervals* covered);

/// Poison in many places of a whole memory file.
Differences check_poison(std::uint64_t key, std::span<const std::uint8_t> file, std::span<const Interval> places,
                         std::size_t limit);

}  // namespace kvcts::kernels
