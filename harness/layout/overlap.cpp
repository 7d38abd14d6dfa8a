// Elements at positions p = low_a + sum(i * s) and q = low_b + sum(j * t) share a bit when -width_a < p - q < width_b. Modes
// of equal stride in both planes only matter through the difference of their digits, so the search runs over differences e
// in [-(extent_b - 1), extent_a - 1], strides descending, and leaves a branch as soon as the smaller strides cannot bring p
// - q back into the window. For nested strides each level then has one or two candidates: the cost does not depend on the
// extents. The lowest shared bit for given differences is reached at digits max(0, e) in a and max(0, -e) in b, which also
// bounds the search from below.
#include "layout/overlap.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "layout/checked.hpp"

namespace kvcts::layout {
namespace {

using checked::add;
using checked::mul;
using checked::sub;

constexpr std::int64_t node_budget = 4'000'000;
constexpr std::int64_t element_budget = std::int64_t{1} << 24;

struct Term {
  std::int64_t stride;     ///< >= 0
  std::int64_t low, high;  ///< range of the digit difference
  std::int64_t rest_low{0}, rest_high{0};
};

struct Side {
  std::int64_t low;  ///< lowest position
  std::vector<Mode> modes;
};

/// Strides made positive, extent-1 modes dropped.
Side side(const Plane& plane) {
  Side s{plane.offset, {}};
  for (Mode m : plane.modes) {
    if (m.extent == 1) continue;
    if (m.stride < 0) {
      s.low = add(s.low, mul(m.extent - 1, m.stride));
      m.stride = sub(0, m.stride);
    }
    s.modes.push_back(m);
  }
  return s;
}

bool flips_nibbles(const Plane& plane) { return plane.high_nibble_first && bits(plane.dtype) == 4; }

class Search {
 public:
  Search(std::vector<Term> terms, int width_a, int width_b, bool self)
      : terms_(std::move(terms)), width_a_(width_a), width_b_(width_b), self_(self) {
    std::sort(terms_.begin(), terms_.end(), [](const Term& x, const Term& y) { return x.stride > y.stride; });
    std::int64_t low = 0;
    std::int64_t high = 0;
    for (std::size_t i = terms_.size(); i-- > 0;) {
      terms_[i].rest_low = low;
      terms_[i].rest_high = high;
      low = add(low, mul(terms_[i].low, terms_[i].stride));
      high = add(high, mul(terms_[i].high, terms_[i].stride));
    }
  }

  /// Lowest max(p, q), or nullopt; exhausted() says whether the search gave up.
  std::optional<std::int64_t> run(std::int64_t low_a, std::int64_t low_b) {
    descend(0, low_a, low_b, !self_);
    if (best_ == std::numeric_limits<std::int64_t>::max()) return std::nullopt;
    return best_;
  }
  bool exhausted() const { return nodes_ > node_budget; }

 private:
  void descend(std::size_t i, std::int64_t p, std::int64_t q, bool differs) {
    if (std::max(p, q) >= best_ || ++nodes_ > node_budget) return;
    const std::int64_t difference = sub(p, q);
    if (i == terms_.size()) {
      if (differs && difference > -width_a_ && difference < width_b_) best_ = std::max(p, q);
      return;
    }
    const Term& t = terms_[i];
    std::int64_t low = t.low;
    std::int64_t high = t.high;
    if (t.stride == 0) {
      low = 0;
      high = self_ ? std::min<std::int64_t>(high, 1) : 0;
    } else {
      const std::int64_t least = sub(sub(-(width_a_ - 1), difference), t.rest_high);
      const std::int64_t most = sub(sub(width_b_ - 1, difference), t.rest_low);
      low = std::max(low, checked::ceil_div(least, t.stride));
      high = std::min(high, checked::floor_div(most, t.stride));
    }
    if (!differs) low = std::max<std::int64_t>(low, 0);  // a pair and its mirror image are the same
    const auto take = [&](std::int64_t e) {
      descend(i + 1, e > 0 ? add(p, mul(e, t.stride)) : p, e < 0 ? add(q, mul(-e, t.stride)) : q, differs || e != 0);
    };
    // Small differences first: they find low bits early, which bounds the rest.
    for (std::int64_t size = std::max<std::int64_t>({0, low, -high}); size <= std::max(high, -low); ++size) {
      if (size >= low && size <= high) take(size);
      if (size != 0 && -size >= low && -size <= high) take(-size);
      if (nodes_ > node_budget) return;
      const bool bounded = best_ != std::numeric_limits<std::int64_t>::max() && t.stride != 0;
      if (bounded && size > (best_ - std::min(p, q)) / t.stride) return;  // larger differences only give higher bits
    }
  }

  std::vector<Term> terms_;
  std::int64_t width_a_, width_b_;
  bool self_;
  std::int64_t best_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t nodes_ = 0;
};

/// Slow exact way for irregular planes: compare the sorted runs.
std::optional<std::int64_t> first_shared_bit_by_runs(const Plane& a, const Plane& b) {
  const auto ra = runs(a, domain(a));
  const auto rb = runs(b, domain(b));
  for (std::size_t i = 0, j = 0; i < ra.size() && j < rb.size();) {
    const std::int64_t begin = std::max(ra[i].bit, rb[j].bit);
    const std::int64_t end_a = ra[i].bit + ra[i].bits;
    const std::int64_t end_b = rb[j].bit + rb[j].bits;
    if (begin < std::min(end_a, end_b)) return begin;
    end_a < end_b ? ++i : ++j;
  }
  return std::nullopt;
}

/// Slow exact way: all positions, sorted.
std::optional<std::int64_t> first_doubled_bit_by_elements(const Plane& plane) {
  if (element_count(plane) > element_budget) {
    throw Error("cannot tell whether the plane overlaps itself: its strides are irregular and it has " +
                std::to_string(element_count(plane)) + " elements (limit " + std::to_string(element_budget) +
                "); use smaller extents");
  }
  std::vector<std::int64_t> positions{plane.offset};
  for (const Mode& m : plane.modes) {
    const std::size_t inner = positions.size();
    for (std::int64_t d = 1; d < m.extent; ++d) {
      for (std::size_t i = 0; i < inner; ++i) positions.push_back(add(positions[i], mul(d, m.stride)));
    }
  }
  std::sort(positions.begin(), positions.end());
  for (std::size_t i = 1; i < positions.size(); ++i) {
    if (positions[i] < positions[i - 1] + bits(plane.dtype)) return positions[i];
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> first_shared_bit(const Plane& a, const Plane& b) {
  const ByteRange in_a = bounds(a);
  const ByteRange in_b = bounds(b);
  if (in_a.end <= in_b.begin || in_b.end <= in_a.begin) return std::nullopt;
  if (flips_nibbles(a) || flips_nibbles(b)) return first_shared_bit_by_runs(a, b);

  const Side sa = side(a);
  Side sb = side(b);
  std::vector<Term> terms;
  for (const Mode& m : sa.modes) {
    const auto twin = std::find_if(sb.modes.begin(), sb.modes.end(), [&](const Mode& n) { return n.stride == m.stride; });
    Term term{m.stride, 0, m.extent - 1};
    if (twin != sb.modes.end()) {
      term.low = -(twin->extent - 1);
      sb.modes.erase(twin);
    }
    terms.push_back(term);
  }
  for (const Mode& m : sb.modes) terms.push_back({m.stride, -(m.extent - 1), 0});
  Search search(std::move(terms), bits(a.dtype), bits(b.dtype), false);
  const auto found = search.run(sa.low, sb.low);
  return search.exhausted() ? first_shared_bit_by_runs(a, b) : found;
}

std::optional<std::int64_t> first_doubled_bit(const Plane& plane) {
  (void)bounds(plane);  // throws on overflow
  const Side s = side(plane);
  std::vector<Term> terms;
  for (const Mode& m : s.modes) terms.push_back({m.stride, -(m.extent - 1), m.extent - 1});
  const int width = bits(plane.dtype);
  Search search(std::move(terms), width, width, true);
  auto found = search.run(s.low, s.low);
  if (search.exhausted()) found = first_doubled_bit_by_elements(plane);
  if (found && flips_nibbles(plane)) *found ^= 4;
  return found;
}

}  // namespace kvcts::layout
