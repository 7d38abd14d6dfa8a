// What can be removed from a case, as documents: each family proposes smaller versions of the current one, the
// largest reduction first. They need not fail, or even be valid cases.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcts::minimize {

struct Candidate {
  nlohmann::json document;  ///< of a case, with its steps as people write them: `actually` contains only what differs
  std::string words;        ///< "layers 3 -> 1", "without memory P1"
};

struct ReductionFamily {
  std::string_view name;
  std::vector<Candidate> (*propose)(const nlohmann::json& document);
};

/// In the order to try: whole parts, then defaults, then numbers of the model, tokens and block ids, then all
/// remaining keys, lists and numbers.
const std::vector<ReductionFamily>& families();

/// Smaller values to try for a number, smallest first, down to `least`: least, then halfway, then ever closer.
std::vector<std::int64_t> smaller(std::int64_t value, std::int64_t least);

}  // namespace kvcts::minimize
