// Maximal contiguous runs of a box.
//
// A range of an axis that is split over several digits is not a product of digit ranges; it is a union of at most 2 * digits
// - 1 such products (partial first digit, whole digits, partial last digit). For each combination of these pieces the
// elements form a lattice: its small strides that continue one another become the run, and the others become loops. No
// element is visited. Runs are then sorted and joined where they touch.
#include <algorithm>
#include <array>
#include <span>

#include "layout/checked.hpp"
#include "layout/digits.hpp"
#include "layout/layout.hpp"

namespace kvcts::layout {
namespace {

using checked::add;
using checked::mul;
using checked::sub;

constexpr std::int64_t run_limit = std::int64_t{1} << 26;

struct DigitRange {
  std::uint8_t mode;
  std::int64_t first, count;
};
using Piece = std::vector<DigitRange>;  ///< one range per mode of the axis

class Pieces {
 public:
  Pieces(const Plane& plane, const AxisDigits& digits, std::int64_t low, std::int64_t high)
      : plane_(plane), digits_(digits) {
    for (int i = 0; i <= digits_.count; ++i) reach_[static_cast<std::size_t>(i)] = digits_.reach(plane, i);
    cut(0, std::max<std::int64_t>(low, 0), std::min(high, add(reach_[0], 1)));
  }
  std::vector<Piece> list;

 private:
  /// All digits from mode i on whose sum lies in [low, high).
  void cut(int i, std::int64_t low, std::int64_t high) {
    if (low >= high) return;
    if (i == digits_.count) {
      if (low <= 0 && high > 0) list.push_back(prefix_);
      return;
    }
    const std::uint8_t index = digits_.mode[static_cast<std::size_t>(i)];
    const Mode& m = plane_.modes[index];
    const std::int64_t span = reach_[static_cast<std::size_t>(i) + 1] + 1;  // of the smaller digits
    // Digit d covers [d * step, d * step + span). Whole where inside [low, high).
    std::int64_t touch = std::max<std::int64_t>(0, checked::ceil_div(low - span + 1, m.step));
    const std::int64_t last = std::min(m.extent - 1, checked::floor_div(high - 1, m.step));
    const std::int64_t whole = std::max(touch, checked::ceil_div(low, m.step));
    const std::int64_t whole_last = std::min(last, checked::floor_div(high - span, m.step));
    for (; touch <= last && touch < whole; ++touch) part(i, index, touch, m.step, low, high);
    if (whole <= whole_last) {
      prefix_.push_back({index, whole, whole_last - whole + 1});
      for (int j = i + 1; j < digits_.count; ++j) {
        const std::uint8_t inner = digits_.mode[static_cast<std::size_t>(j)];
        prefix_.push_back({inner, 0, plane_.modes[inner].extent});
      }
      list.push_back(prefix_);
      prefix_.resize(static_cast<std::size_t>(i));
      touch = whole_last + 1;
    }
    for (; touch <= last; ++touch) part(i, index, touch, m.step, low, high);
  }

  void part(int i, std::uint8_t index, std::int64_t digit, std::int64_t step, std::int64_t low, std::int64_t high) {
    prefix_.push_back({index, digit, 1});
    const std::int64_t at = digit * step;
    cut(i + 1, std::max<std::int64_t>(low - at, 0), std::min(high - at, reach_[static_cast<std::size_t>(i) + 1] + 1));
    prefix_.resize(static_cast<std::size_t>(i));
  }

  const Plane& plane_;
  const AxisDigits& digits_;
  std::array<std::int64_t, max_modes + 1> reach_{};
  Piece prefix_;
};

/// The pieces of one axis. Axes of one digit or none, nearly all of them, allocate nothing.
class AxisPieces {
 public:
  void cut(const Plane& plane, Axis axis, std::int64_t low, std::int64_t high) {
    const AxisDigits digits(plane, axis);
    if (digits.count > 1) {
      Pieces pieces(plane, digits, low, high);
      many_ = std::move(pieces.list);
      count_ = many_.size();
      return;
    }
    length_ = static_cast<std::size_t>(digits.count);
    if (digits.count == 0) {
      count_ = low <= 0 && high > 0 ? 1 : 0;
      return;
    }
    const Mode& m = plane.modes[digits.mode[0]];
    const std::int64_t first = std::max<std::int64_t>(0, checked::ceil_div(low, m.step));
    const std::int64_t last = high <= 0 ? -1 : std::min(m.extent - 1, checked::floor_div(high - 1, m.step));
    one_ = {digits.mode[0], first, last - first + 1};
    count_ = first <= last ? 1 : 0;
  }
  std::size_t count() const { return count_; }
  std::span<const DigitRange> piece(std::size_t i) const {
    return many_.empty() ? std::span<const DigitRange>(&one_, length_) : std::span<const DigitRange>(many_[i]);
  }

 private:
  DigitRange one_{};
  std::size_t length_{0};
  std::size_t count_{0};
  std::vector<Piece> many_;
};

struct Loop {
  std::int64_t stride, count;
  Axis axis;
  std::int64_t step;  ///< coordinate units per repetition, negative if the stride was
};

/// Collects the runs of one lattice after another.
class Collector {
 public:
  explicit Collector(const Plane& plane) : width_(bits(plane.dtype)) {}

  void lattice(std::int64_t position, Coord coord, std::array<Loop, max_modes>& loops, int count) {
    std::sort(loops.begin(), loops.begin() + count, [](const Loop& a, const Loop& b) { return a.stride < b.stride; });
    std::int64_t run = width_;
    int from = 0;
    for (; from < count && loops[static_cast<std::size_t>(from)].stride <= run; ++from) {
      const Loop& l = loops[static_cast<std::size_t>(from)];  // repetitions that touch or overlap: their union
      run = add(run, mul(l.count - 1, l.stride));
    }
    std::int64_t starts = 1;
    for (int i = from; i < count; ++i) starts = mul(starts, loops[static_cast<std::size_t>(i)].count);
    if (starts > run_limit || static_cast<std::int64_t>(out.size()) > run_limit - starts) {
      throw Error("the box has more than " + std::to_string(run_limit) + " contiguous runs; ask for a smaller box");
    }
    out.reserve(out.size() + static_cast<std::size_t>(starts));
    std::array<std::int64_t, max_modes> digit;
    std::fill_n(digit.begin(), count, 0);
    for (std::int64_t n = 0; n < starts; ++n) {
      out.push_back({position, run, coord});
      for (int i = from; i < count; ++i) {
        const Loop& l = loops[static_cast<std::size_t>(i)];
        std::int64_t& d = digit[static_cast<std::size_t>(i)];
        if (++d < l.count) {
          position += l.stride;
          coord[l.axis] += l.step;
          break;
        }
        position -= (l.count - 1) * l.stride;
        coord[l.axis] -= (l.count - 1) * l.step;
        d = 0;
      }
    }
  }

  std::vector<Run> out;

 private:
  std::int64_t width_;
};

/// Ascending, with touching and overlapping runs joined.
void join(std::vector<Run>& list) {
  const auto before = [](const Run& a, const Run& b) { return a.bit < b.bit; };
  if (!std::is_sorted(list.begin(), list.end(), before)) std::stable_sort(list.begin(), list.end(), before);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < list.size(); ++i) {
    if (list[i].bit <= list[kept].bit + list[kept].bits) {
      list[kept].bits = std::max(list[kept].bits, list[i].bit + list[i].bits - list[kept].bit);
    } else {
      list[++kept] = list[i];
    }
  }
  if (!list.empty()) list.resize(kept + 1);
}

bool inside(const Coord& coord, const Box& box) {
  return std::all_of(all_axes.begin(), all_axes.end(),
                     [&](Axis a) { return coord[a] >= box.lo[a] && coord[a] < box.hi[a]; });
}

/// With the high nibble first, positions [p, q) are the bits {i ^ 4}: a nibble at an uneven end lies apart.
std::vector<Run> with_high_nibble_first(const Plane& plane, const Box& box, const std::vector<Run>& logical) {
  std::vector<Run> out;
  const auto push = [&](std::int64_t bit, std::int64_t length) {
    const auto owners = inverse(plane, bit);  // in a plane that overlaps itself, one inside the box
    const auto owner = std::find_if(owners.begin(), owners.end(), [&](const Element& e) { return inside(e.coord, box); });
    out.push_back({bit, length, owner == owners.end() ? Coord{} : owner->coord});
  };
  for (const Run& run : logical) {
    std::int64_t begin = run.bit;
    std::int64_t end = run.bit + run.bits;
    if ((begin & 4) != 0) {
      push(begin ^ 4, 4);
      begin += 4;
    }
    const bool odd_end = (end & 4) != 0 && end > begin;
    if (odd_end) end -= 4;
    if (end > begin) push(begin, end - begin);
    if (odd_end) push(end ^ 4, 4);
  }
  join(out);
  return out;
}

}  // namespace

std::vector<Run> runs(const Plane& plane, const Box& box) {
  (void)bounds(plane);  // throws if a position would overflow; all sums below stay within
  Collector collector(plane);
  std::array<AxisPieces, axis_count> pieces;
  for (Axis axis : all_axes) {
    const auto a = static_cast<std::size_t>(axis);
    pieces[a].cut(plane, axis, sub(box.lo[axis], plane.origin[axis]), sub(box.hi[axis], plane.origin[axis]));
    if (pieces[a].count() == 0) return {};
  }
  std::array<std::size_t, axis_count> pick{};
  for (bool more = true; more;) {
    std::int64_t position = plane.offset;
    Coord coord = plane.origin;
    std::array<Loop, max_modes> loops;
    int count = 0;
    for (std::size_t a = 0; a < axis_count; ++a) {
      for (const DigitRange& range : pieces[a].piece(pick[a])) {
        const Mode& m = plane.modes[range.mode];
        // Start at the lowest position: the last digit where the stride is negative.
        const std::int64_t start = m.stride < 0 ? range.first + range.count - 1 : range.first;
        position += start * m.stride;
        coord[m.axis] += start * m.step;
        if (range.count > 1 && m.stride != 0) {
          const bool back = m.stride < 0;
          loops[static_cast<std::size_t>(count++)] = {back ? -m.stride : m.stride, range.count, m.axis,
                                                      back ? -m.step : m.step};
        }
      }
    }
    collector.lattice(position, coord, loops, count);
    more = false;
    for (std::size_t a = axis_count; a-- > 0;) {
      if (++pick[a] < pieces[a].count()) {
        more = true;
        break;
      }
      pick[a] = 0;
    }
  }
  join(collector.out);
  if (plane.high_nibble_first && bits(plane.dtype) == 4) return with_high_nibble_first(plane, box, collector.out);
  return std::move(collector.out);
}

}  // namespace kvcts::layout
