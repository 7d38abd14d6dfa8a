// What can be taken out of a case, as documents: each family proposes smaller ones of the present, the largest reduction
// first. Nothing here knows whether they still fail, or are cases at all.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcts::minimize {

struct Candidate {
  nlohmann::json document;  ///< of a case, its steps as people write them: what happened says only what differs
  std::string words;        ///< "layers 3 -> 1", "without memory P1"
};

struct Family {
  std::string_view name;
  std::vector<Candidate> (*propose)(const nlohmann::json& document);
};

/// In the order in which they are tried: whole parts, then defaults, then numbers of the model, tokens and block ids, then
/// every key, list and number that is left.
const std::vector<Family>& families();

/// Smaller values to try for a number, the smallest first, down to `least`: least, then halfway, then ever closer.
std::vector<std::int64_t> smaller(std::int64_t value, std::int64_t least);

}  // namespace kvcts::minimize
