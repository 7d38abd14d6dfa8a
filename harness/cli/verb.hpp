// A verb of the program: a name, one line of help, and a function that declares its options and returns its action.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/exit.hpp"
#include "cli/options.hpp"

namespace kvcts::cli {

/// Options that every verb has.
struct Globals {
  bool json{false};   ///< --json: one JSON document on standard output, nothing else there
  std::string cases;  ///< --cases; empty: the catalogue beside the program (catalogue::find_cases)
};

using Action = std::function<int()>;

struct Verb {
  std::string_view name, summary;
  Action (*declare)(Command& command, const Globals& globals);
};

/// All verbs in the order of the help text (verbs.cpp: one line each).
const std::vector<Verb>& verbs();

}  // namespace kvcts::cli
