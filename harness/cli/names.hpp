// Checks names that the user gives against names that exist.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace kvcts::cli {

/// Throws UsageError on the first of `names` that is not known: "EXPECTED, found 'x'; did you mean 'y'?".
void expect_known(const std::string& expected, const std::vector<std::string>& names, const std::vector<std::string>& known);

/// Keeps of `kept` what has its key in `wanted`, or everything when nothing is wanted. Throws UsageError, as expect_known(),
/// on a name that nothing in `all` has: `kept` may have been narrowed before.
template <class T, class Key>
void narrow(std::vector<T>& kept, const std::vector<T>& all, const std::vector<std::string>& wanted,
            const std::string& expected, Key&& key) {
  if (wanted.empty()) return;
  std::vector<std::string> known;
  for (const T& one : all)
    if (std::find(known.begin(), known.end(), key(one)) == known.end()) known.push_back(key(one));
  expect_known(expected, wanted, known);
  std::erase_if(kept, [&](const T& one) { return std::find(wanted.begin(), wanted.end(), key(one)) == wanted.end(); });
}

}  // namespace kvcts::cli
