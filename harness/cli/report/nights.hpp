// A run among earlier ones, on its page.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/compare.hpp"

namespace kvcts::report {

/// What a history knows of a run's cases (cli/history/page.hpp).
struct Nights {
  std::string markup;  ///< a section: the trend, and what is new, flaky or slow
  std::map<std::string, std::string>
      strips;  ///< of cases that were not always good: a letter a night (store::Mark), ' ' = not planned
};

/// What a page says beside its own run; each may be missing.
struct Around {
  const Comparison* since{nullptr};
  const Nights* nights{nullptr};
};

/// A coloured cell a letter; to be read without colours, too. "" for "".
std::string strip_markup(std::string_view letters);
/// Of several cases, night by night: the worst letter.
std::string worst_strip(const std::vector<std::string>& ids, const Nights& nights);

}  // namespace kvcts::report
