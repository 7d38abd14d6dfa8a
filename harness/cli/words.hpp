// The controlled words of the suite, explained in one place: `kvcts explain` prints them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvcts::cli {

struct Word {
  std::string kind;     ///< "outcome", "verdict", "evidence", "phase", "fault class"
  std::string name;     ///< "HANG"
  std::string meaning;  ///< one or two sentences
  std::string advice;   ///< what to do or to look at; may be empty
};

/// All of them, in the order of their enums and tables. Complete: every enumerator has its entry.
const std::vector<Word>& words();

}  // namespace kvcts::cli
