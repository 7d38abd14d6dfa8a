// Random scripted cases, right ones and wrong ones: a small transfer of random shape, and one or two transformations of what
// was meant, with random parameters, written as the `actually` of a case file. So the whole way from the text to the verdict
// is tried.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace kvcts::script {

struct RandomCase {
  nlohmann::json document;           ///< a case file's document; `actually` where something is wrong
  std::vector<std::string> classes;  ///< of the transformations in it, by what the vocabulary says of each
  std::vector<std::string> words;
};

/// A case with `faults` (0, 1 or 2) transformations. The same seed gives the same case.
RandomCase random_case(std::uint64_t seed, int faults);

}  // namespace kvcts::script
