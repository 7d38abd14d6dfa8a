// A verb of the program: its names, its help, and a function that declares its options and returns its action.
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
  std::string_view group;     ///< heading in `kvcts help`
  std::string_view name;      ///< "repro"
  std::string_view mode;      ///< "--bytes": what the verb does where this flag is given; "" = the verb itself
  std::string_view former;    ///< its name in earlier versions, accepted for ever and not listed; "" = none
  std::string_view summary;   ///< verb + object + why
  std::string_view example;   ///< one command line, without "kvcts"
  std::string_view statuses;  ///< exit statuses, in words
  Action (*declare)(Command& command, const Globals& globals);

  /// "repro --bytes"
  std::string title() const { return std::string(name) + (mode.empty() ? "" : " " + std::string(mode)); }
};

/// All verbs and their modes, in the order of the help text (verbs.cpp: one entry each). A mode stands behind its verb.
const std::vector<Verb>& verbs();

}  // namespace kvcts::cli
