// Bytes of one buffer as ranges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace kvcts::scenario {

/// begin -> end, disjoint and ascending; ranges that touch are one.
using ByteRanges = std::map<std::int64_t, std::int64_t>;

inline void add_range(ByteRanges& ranges, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  auto at = ranges.upper_bound(begin);
  if (at != ranges.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges.erase(at);
  }
  ranges[begin] = end;
}

inline bool holds_byte(const ByteRanges& ranges, std::int64_t offset) {
  const auto after = ranges.upper_bound(offset);
  return after != ranges.begin() && offset < std::prev(after)->second;
}

inline void remove_byte(ByteRanges& ranges, std::int64_t offset) {
  auto at = ranges.upper_bound(offset);
  if (at == ranges.begin() || (--at)->second <= offset) return;
  const std::int64_t end = at->second;
  if (at->first == offset)
    ranges.erase(at);
  else
    at->second = offset;
  if (offset + 1 < end) ranges[offset + 1] = end;
}

}  // namespace kvcts::scenario
