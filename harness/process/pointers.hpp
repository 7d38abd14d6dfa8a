// Argument vectors for exec and posix_spawn.
#pragma once

#include <string>
#include <vector>

namespace kvcts::process {

/// Pointers to the words, null-terminated. Valid while `words` lives unchanged.
inline std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace kvcts::process
