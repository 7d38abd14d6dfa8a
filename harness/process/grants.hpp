// What an entry of an engine may ask for beyond what every sandbox has (sandbox/sandbox.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvcts::process {

/// Something that an entry of an engine or connector may ask for.
struct Grant {
  std::string_view name, meaning;
  std::vector<std::string> folders;  ///< of the machine, as far as they are there; of /dev with its devices
  std::vector<std::string> globs;    ///< devices by pattern
  std::vector<int> calls;            ///< system calls that the filter lets pass
};
const std::vector<Grant>& grants();
std::vector<std::string> grant_names();

}  // namespace kvcts::process
