// What a program does to bytes, symbolically: every byte is a number that identifies its origin. Two programs make the same
// map exactly when they leave the same numbers; no dtype or seed can hide a difference.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "scene/machine/copy_program.hpp"

namespace kvcts::scenario {

/// Backing and offset -> number, after the whole program, without unwritten bytes. At every check, in order.
using Symbols = std::unordered_map<std::uint64_t, std::uint64_t>;
std::vector<Symbols> symbols_of(const CopyProgram& program);

/// Whether two sequences leave the same bytes at their checks, end in the same way and report the same.
bool same_map(const CopyProgram& a, const CopyProgram& b);

}  // namespace kvcts::scenario
