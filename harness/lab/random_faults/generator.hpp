// Random scripted cases, correct and faulty: a small transfer of random shape and up to two transformations of it
// with random parameters, written as the `actually` of a case file. This exercises the whole path from text to
// verdict.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "case/outcome.hpp"

namespace kvcts::scenario {

struct RandomCase {
  nlohmann::json document;          ///< a case file's document; `actually` if something is wrong
  std::vector<FaultClass> classes;  ///< classes of its transformations, as the vocabulary defines them
  std::vector<std::string> words;
};

/// A case with `faults` (0, 1 or 2) transformations. The same seed gives the same case.
RandomCase random_case(std::uint64_t seed, int faults);

}  // namespace kvcts::scenario
