// How a sequence of steps ends, intended or actual.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvcts::scenario {

struct SequenceEnding {
  std::string kind{"completed"};  ///< completed | refused | raised | crashed | hung
  std::string step;               ///< name of the step
  std::string in;                 ///< hung: transfer | kernel | handshake
  std::string text, about, signal;
  nlohmann::json expects, found;
};

}  // namespace kvcts::scenario
