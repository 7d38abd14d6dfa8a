// What happened, in words: each rule is a scope and what became of the bytes in it. Nothing is guessed: a rule is read off
// the facts and holds for every byte that it counts.
#pragma once

#include <vector>

#include "case/result.hpp"
#include "diagnose/findings/facts.hpp"

namespace kvcts::findings {

/// All wrong bytes of `facts`, in as few rules as there are, the largest share first. Linear in the facts.
std::vector<Finding> what_happened(const std::vector<Fact>& facts, const Names& names);

/// One rule in words. `maps`: of the axes on which what is there differs, each with its map.
std::string words_of(const std::vector<Fact>& facts, const Box& box, const std::map<Axis, Map>& maps, const Scope& universe,
                     const Names& names);

Finding words_of(const std::vector<Fact>& facts, const Transposition& turned, const Scope& universe, const Names& names);

Finding words_of(const std::vector<Fact>& facts, const Fit& fit, const Scope& universe, const Names& names);

std::string words_of(const Flat& flat, const Names& names);

}  // namespace kvcts::findings
