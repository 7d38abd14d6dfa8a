// Which bytes of a memory file have been looked at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvcts::kernels {

class Intervals {
 public:
  struct Interval {
    std::int64_t begin{0}, end{0};
  };

  /// Bytes [begin, end). In memory's order it costs next to nothing.
  void add(std::int64_t begin, std::int64_t end) {
    if (!all_.empty() && all_.back().end == begin) {
      all_.back().end = end;
    } else {
      all_.push_back({begin, end});
    }
  }
  void add(const Intervals& other) { all_.insert(all_.end(), other.all_.begin(), other.all_.end()); }

  /// What is left of [0, size), ascending. False, and nothing in `out`, when two intervals overlap.
  bool holes(std::int64_t size, std::vector<Interval>& out) {
    const auto before = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
    if (!std::is_sorted(all_.begin(), all_.end(), before)) std::sort(all_.begin(), all_.end(), before);
    out.clear();
    std::int64_t at = 0;
    for (const Interval& interval : all_) {
      if (interval.begin < at) {
        out.clear();
        return false;
      }
      if (interval.begin > at) out.push_back({at, interval.begin});
      at = interval.end;
    }
    if (at < size) out.push_back({at, size});
    return true;
  }

 private:
  std::vector<Interval> all_;
};

}  // namespace kvcts::kernels
