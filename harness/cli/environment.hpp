// Every environment variable that a user may set, in one table: `kvcts help environment`, the man page and the tests.
#pragma once

#include <string_view>
#include <vector>

namespace kvcts::cli {

struct EnvironmentVariable {
  std::string_view name;     ///< "KVCTS_CASES"
  std::string_view meaning;  ///< what it changes, and what holds without it
};

const std::vector<EnvironmentVariable>& environment_variables();

}  // namespace kvcts::cli
