// Tracks which bytes of a memory file have been checked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvcts::kernels {

struct Interval {
  std::int64_t begin{0}, end{0};
  bool operator==(const Interval&) const = default;
};

class Intervals {
 public:
  /// Bytes [begin, end). Merges neighbours added in memory order.
  void add(std::int64_t begin, std::int64_t end) {
    if (!all_.empty() && all_.back().end == begin) {
      all_.back().end = end;
    } else {
      all_.push_back({begin, end});
    }
  }
  void add(const Intervals& other, std::int64_t shift = 0) {
    for (const Interval& interval : other.all_) add(interval.begin + shift, interval.end + shift);
  }

  /// Sorts and merges neighbours. False when two overlap.
  bool settle() {
    const auto before = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
    if (!std::is_sorted(all_.begin(), all_.end(), before)) std::sort(all_.begin(), all_.end(), before);
    std::size_t last = 0;
    for (std::size_t k = 1; k < all_.size(); ++k) {
      if (all_[k].begin < all_[last].end) return false;
      if (all_[k].begin == all_[last].end) {
        all_[last].end = all_[k].end;
      } else {
        all_[++last] = all_[k];
      }
    }
    if (!all_.empty()) all_.resize(last + 1);
    return true;
  }

  const std::vector<Interval>& all() const { return all_; }

  /// The rest of [0, size), ascending. Needs settle().
  std::vector<Interval> holes(std::int64_t size) const {
    std::vector<Interval> out;
    std::int64_t at = 0;
    for (const Interval& interval : all_) {
      if (interval.begin > at) out.push_back({at, interval.begin});
      at = interval.end;
    }
    if (at < size) out.push_back({at, size});
    return out;
  }

 private:
  std::vector<Interval> all_;
};

}  // namespace kvcts::kernels
