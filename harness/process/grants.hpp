// What an engine's entry may request beyond what every sandbox allows (sandbox/sandbox.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvcts::process {

/// One permission that the entry of an engine or connector may request.
struct Grant {
  std::string_view name, meaning;
  std::vector<std::string> folders;  ///< of the machine, where they exist; under /dev with its devices
  std::vector<std::string> globs;    ///< devices by pattern
  std::vector<int> calls;            ///< system calls that the filter allows
  bool network{false};               ///< the machine's, where others have a loopback
};
const std::vector<Grant>& grants();
std::vector<std::string> grant_names();

}  // namespace kvcts::process
