// What happened, in words: each rule is a scope and what became of the bytes in it. Nothing is guessed: a rule is read off
// the facts and holds for every byte that it counts.
#pragma once

#include <vector>

#include "case/result.hpp"
#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

/// All wrong bytes of `facts`, in as few rules as there are, the largest share first. Linear in the facts.
std::vector<Finding> what_happened(const std::vector<Extent>& extents, const Labels& labels);

/// What tells pieces that came short from those that came whole.
struct PieceRule {
  int of{0};            ///< length, alignment or order
  std::string words;    ///< "every piece of an odd length is 1 byte short"
  std::string message;  ///< "...; the even ones are whole"
  std::string share;    ///< "15 of 40 pieces"
  bool part{false};     ///< it says how much of each is missing
  bool whole{true};     ///< of each all is missing
};
/// Every such rule that holds for all wrong bytes, but for outputs; those of one property together, the simplest first.
std::vector<PieceRule> piece_rules(const std::vector<Extent>& extents, const Labels& labels);

/// One rule in words. `maps`: of the axes on which what is there differs, each with its map.
Finding to_string(const std::vector<Extent>& extents, const ExtentBox& box, const std::map<ContentAxis, AxisMap>& maps,
                  const Scope& universe, const Labels& labels);

Finding to_string(const std::vector<Extent>& extents, const Transposition& turned, const Scope& universe,
                  const Labels& labels);

Finding to_string(const std::vector<Extent>& extents, const StrideFit& fit, const Scope& universe, const Labels& labels);

Finding to_string(const FlatCopy& flat, const Labels& labels);

}  // namespace kvcts::findings
