// What a tape does to bytes, symbolically: every byte is a number that identifies its origin. Two tapes make the same
// map exactly when they leave the same numbers; no dtype or seed can hide a difference.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "scene/machine/tape.hpp"

namespace kvcts::scenario {

/// Backing and offset -> number, after the whole tape, without unwritten bytes. At every check, in order.
using Symbols = std::unordered_map<std::uint64_t, std::uint64_t>;
std::vector<Symbols> symbols_of(const Tape& tape);

/// Whether two sequences leave the same bytes at their checks, end in the same way and report the same.
bool same_map(const Tape& a, const Tape& b);

}  // namespace kvcts::scenario
