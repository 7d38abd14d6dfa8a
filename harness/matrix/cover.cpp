#include "matrix/cover.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace kvcts::matrix {

namespace {

// All t-subsets of n factors, and for each a numbering of its tuples: offset + mixed radix of local value numbers.
struct Subsets {
  struct One {
    std::vector<int> factors;
    std::vector<std::size_t> strides;
    std::size_t offset{0}, count{1};
  };
  std::vector<One> all;
  std::vector<std::vector<int>> with;  ///< factor -> subsets that contain it
  std::size_t total{0};

  Subsets(const std::vector<std::size_t>& sizes, int strength) : with(sizes.size()) {
    const int n = static_cast<int>(sizes.size());
    std::vector<int> pick(static_cast<std::size_t>(strength));
    std::iota(pick.begin(), pick.end(), 0);
    while (true) {
      One one;
      one.factors = pick;
      one.offset = total;
      for (const int f : pick) {
        one.strides.push_back(one.count);
        one.count *= sizes[static_cast<std::size_t>(f)];
      }
      if (one.count > (std::size_t{1} << 27) || total > (std::size_t{1} << 29)) {
        throw Error("expected at most 2^27 value tuples of a set of axes for a cover, found more; lower the strength");
      }
      total += one.count;
      for (const int f : pick) with[static_cast<std::size_t>(f)].push_back(static_cast<int>(all.size()));
      all.push_back(std::move(one));
      int i = strength - 1;
      while (i >= 0 && pick[static_cast<std::size_t>(i)] == n - strength + i) --i;
      if (i < 0) break;
      ++pick[static_cast<std::size_t>(i)];
      for (int k = i + 1; k < strength; ++k) pick[static_cast<std::size_t>(k)] = pick[static_cast<std::size_t>(k - 1)] + 1;
    }
  }
  template <class Digits>
  std::size_t index(const One& one, const Digits& digits) const {
    std::size_t at = one.offset;
    for (std::size_t i = 0; i < one.factors.size(); ++i)
      at += one.strides[i] * static_cast<std::size_t>(digits[static_cast<std::size_t>(one.factors[i])]);
    return at;
  }
};

std::uint64_t scramble(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// Builds rows of a covering array. A row has one local value number per factor; -1 = not yet chosen.
class RowBuilder {
 public:
  RowBuilder(const Space& space, Constraints& constraints, const EnumerationBlock& block, int strength)
      : space_(space),
        constraints_(constraints),
        block_(block),
        factors_(factors_of(block)),
        sizes_(sizes_of(block, factors_)),
        subsets_(sizes_, strength),
        covered_(subsets_.total, 0) {
    for (std::size_t a = 0; a < axis_count; ++a) base_[a] = block.values[a][0];
    fixed_ = ~std::uint32_t{0};
    for (const int axis_number : factors_) fixed_ &= ~(std::uint32_t{1} << axis_number);
    for (std::size_t v = 0; v < factors_.size(); ++v) used_.emplace_back(sizes_[v], 0);
    consumer_ = static_cast<std::size_t>(std::find(factors_.begin(), factors_.end(), static_cast<int>(AxisId::consumer)) -
                                         factors_.begin());
    find_rules();
    // Axes that many rules read come first, so a dead end is found before the free axes are filled in.
    for (std::size_t f = 0; f < factors_.size(); ++f) order_.push_back(f);
    const auto weight = [&](std::size_t f) {
      return std::count_if(rules_.begin(), rules_.end(),
                           [&](const Projected& rule) { return rule.factors & std::uint32_t{1} << f; });
    };
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  }

  static std::vector<int> factors_of(const EnumerationBlock& block) {
    std::vector<int> out;
    for (int a = 0; a < axis_count; ++a) {
      if (block.values[static_cast<std::size_t>(a)].size() > 1) out.push_back(a);
    }
    return out;
  }
  static std::vector<std::size_t> sizes_of(const EnumerationBlock& block, const std::vector<int>& factors) {
    std::vector<std::size_t> out;
    for (const int f : factors) out.push_back(block.values[static_cast<std::size_t>(f)].size());
    return out;
  }

  std::vector<Point> build(CoverReport& report) {
    std::vector<Point> rows;
    for (const auto& subset : subsets_.all) {
      for (std::size_t t = 0; t < subset.count; ++t) {
        if (covered_[subset.offset + t]) continue;
        start(subset, t);
        switch (complete(true)) {
          case Search::found:
            rows.push_back(take_row(report));
            break;
          case Search::limit:
            ++report.undecided;
            break;
          case Search::none:
            exclude(subset, t, report);
            break;
        }
      }
    }
    return rows;
  }

 private:
  enum class Search : std::uint8_t { found, none, limit };
  static constexpr std::int64_t max_steps = 20'000;
  static constexpr std::uint32_t all = ~std::uint32_t{0};

  void start(const Subsets::One& subset, std::size_t tuple) {
    digits_.assign(factors_.size(), -1);
    point_ = base_;
    for (std::size_t i = 0; i < subset.factors.size(); ++i) {
      put(static_cast<std::size_t>(subset.factors[i]),
          (tuple / subset.strides[i]) % sizes_[static_cast<std::size_t>(subset.factors[i])]);
    }
    steps_ = 0;
  }
  void put(std::size_t factor, std::size_t value) {
    digits_[factor] = static_cast<int>(value);
    const auto a = static_cast<std::size_t>(factors_[factor]);
    point_[a] = block_.values[a][value];
  }
  void clear(std::size_t factor) { digits_[factor] = -1; }

  // A rule (or a condition of `where`) and the factors it reads.
  struct Projected {
    int rule{0};               ///< of the constraints; below 0: -1 - a condition of `where`
    std::uint32_t factors{0};  ///< bit per factor
    std::vector<std::size_t> list;
    bool of_consumer{false};  ///< see Constraints::Rule
    bool keyed{true};         ///< all combinations of its values have a 64-bit number
    Memo memo;                ///< values of its factors, 0 = not assigned -> 1 when some completion satisfies the rule
  };

  void find_rules() {
    const auto add = [&](int rule, std::uint32_t support, bool of_consumer = false) {
      Projected out;
      out.rule = rule, out.of_consumer = of_consumer;
      for (std::size_t f = 0; f < factors_.size(); ++f) {
        if (support >> factors_[f] & 1U) out.factors |= std::uint32_t{1} << f, out.list.push_back(f);
      }
      std::uint64_t combinations = 1;
      for (const std::size_t f : out.list)
        out.keyed = out.keyed && !__builtin_mul_overflow(combinations, sizes_[f] + 1, &combinations);
      rules_.push_back(std::move(out));
    };
    for (std::size_t c = 0; block_.where && c < block_.where->conditions(); ++c)
      add(-1 - static_cast<int>(c), block_.where->support(c));
    const auto content = static_cast<std::size_t>(AxisId::content);
    const bool only_tags = block_.values[content].size() == 1 && block_.values[content][0] == space_.origin()[content];
    for (std::size_t r = 0; r < constraints_.rules().size(); ++r) {
      if (only_tags && constraints_.rules()[r].name == "golden") continue;
      add(static_cast<int>(r), constraints_.rules()[r].support, constraints_.rules()[r].of_consumer);
    }
  }

  bool holds(const Projected& rule) {
    const Point canonical = space_.canonical(point_);
    return rule.rule < 0 ? block_.where->holds(static_cast<std::size_t>(-1 - rule.rule), canonical)
                         : !constraints_.violates(static_cast<std::size_t>(rule.rule), canonical);
  }

  // Chosen, and not "same".
  bool consumer_is_named() const {
    const auto a = static_cast<std::size_t>(AxisId::consumer);
    return consumer_ < factors_.size() && digits_[consumer_] >= 0 && point_[a] != space_.origin()[a];
  }

  // Can the rule's unassigned axes be given values that satisfy it? Checks each rule alone; the search handles conflicts
  // between rules.
  bool possible(Projected& rule) {
    std::uint64_t key = 0;
    std::size_t open = factors_.size();
    const bool named = rule.of_consumer && consumer_is_named();
    for (const std::size_t f : rule.list) {
      if (named && factors_[f] == static_cast<int>(AxisId::producer)) continue;
      if (digits_[f] < 0) open = f;
      key = key * (sizes_[f] + 1) + static_cast<std::uint64_t>(digits_[f] + 1);
    }
    if (open == factors_.size()) return holds(rule);
    if (!rule.keyed) return true;
    return rule.memo.get(key, [&]() -> std::uint32_t {
      bool any = false;
      for (std::size_t v = 0; v < sizes_[open] && !any; ++v) {
        put(open, v);
        any = possible(rule);
      }
      clear(open);
      return any;
    }) != 0;
  }

  bool allowed(std::uint32_t changed, bool with_constraints) {
    for (auto& rule : rules_) {
      if ((rule.rule < 0 || with_constraints) && (rule.factors & changed || changed == all) && !possible(rule)) return false;
    }
    return true;
  }

  Search complete(bool with_constraints) {
    if (!allowed(all, with_constraints)) return Search::none;
    return descend(with_constraints);
  }
  Search descend(bool with_constraints) {
    std::size_t next = 0;
    while (next < order_.size() && digits_[order_[next]] >= 0) ++next;
    if (next == order_.size()) return Search::found;
    const std::size_t factor = order_[next];
    if (++steps_ > max_steps) return Search::limit;
    for (const std::size_t value : by_gain(factor)) {
      put(factor, value);
      if (allowed(std::uint32_t{1} << factor, with_constraints)) {
        const Search below = descend(with_constraints);
        if (below != Search::none) return below;
      }
      clear(factor);
    }
    return Search::none;
  }

  // Values of a factor: first those that complete the most new tuples with what is assigned, then the least used, then a
  // fixed shuffle.
  std::vector<std::size_t> by_gain(std::size_t factor) {
    const std::size_t n = sizes_[factor];
    std::vector<int> gain(n, 0);
    for (const int s : subsets_.with[factor]) {
      const auto& subset = subsets_.all[static_cast<std::size_t>(s)];
      bool complete_otherwise = true;
      std::size_t at_zero = subset.offset, stride = 0;
      for (std::size_t i = 0; i < subset.factors.size(); ++i) {
        const auto f = static_cast<std::size_t>(subset.factors[i]);
        if (f == factor) {
          stride = subset.strides[i];
        } else if (digits_[f] < 0) {
          complete_otherwise = false;
        } else {
          at_zero += subset.strides[i] * static_cast<std::size_t>(digits_[f]);
        }
      }
      if (!complete_otherwise) continue;
      for (std::size_t v = 0; v < n; ++v) gain[v] += covered_[at_zero + v * stride] == 0;
    }
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::uint64_t salt = static_cast<std::uint64_t>(row_) << 32 | factor << 16;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (gain[a] != gain[b]) return gain[a] > gain[b];
      if (used_[factor][a] != used_[factor][b]) return used_[factor][a] < used_[factor][b];
      const auto ha = scramble(salt + a), hb = scramble(salt + b);
      return ha != hb ? ha < hb : a < b;
    });
    return order;
  }

  Point take_row(CoverReport& report) {
    for (const auto& subset : subsets_.all) {
      auto& mark = covered_[subsets_.index(subset, digits_)];
      report.tuples += mark == 0;
      mark = 1;
    }
    for (std::size_t f = 0; f < digits_.size(); ++f) ++used_[f][static_cast<std::size_t>(digits_[f])];
    ++row_;
    return space_.canonical(point_);
  }

  // No row holds this tuple. Outside `where` it is not part of the block; otherwise a constraint stops it: name one.
  void exclude(const Subsets::One& subset, std::size_t tuple, CoverReport& report) {
    start(subset, tuple);
    if (complete(false) != Search::found) return;
    const int stopped = constraints_.check(space_.canonical(point_));
    CoverReport::Excluded out;
    for (std::size_t i = 0; i < subset.factors.size(); ++i) {
      const auto f = static_cast<std::size_t>(subset.factors[i]);
      const auto a = static_cast<std::size_t>(factors_[f]);
      out.tuple.emplace_back(static_cast<AxisId>(a), block_.values[a][(tuple / subset.strides[i]) % sizes_[f]]);
    }
    // Prefer a constraint over the tuple's own axes as the reason.
    out.constraint = stopped > 0 ? constraints_.rules()[static_cast<std::size_t>(stopped) - 1].name : "several together";
    std::uint32_t own = 0;
    for (const auto& [a, v] : out.tuple) own |= std::uint32_t{1} << static_cast<unsigned>(a);
    const Point canonical = space_.canonical(point_);
    for (std::size_t r = 0; r < constraints_.rules().size(); ++r) {
      const auto& rule = constraints_.rules()[r];
      if ((rule.support & ~(own | fixed_)) == 0 && constraints_.violates(r, canonical)) {
        out.constraint = rule.name;
        break;
      }
    }
    report.excluded.push_back(std::move(out));
  }

  const Space& space_;
  Constraints& constraints_;
  const EnumerationBlock& block_;
  std::vector<int> factors_;
  std::vector<std::size_t> sizes_;
  Subsets subsets_;
  std::vector<std::uint8_t> covered_;
  std::vector<std::vector<int>> used_;
  Point base_{}, point_{};
  std::vector<int> digits_;
  std::uint32_t fixed_{0};
  std::vector<Projected> rules_;
  std::vector<std::size_t> order_;
  std::size_t consumer_{0};  ///< its factor; their number if it is fixed
  std::int64_t steps_{0};
  std::size_t row_{0};
};

}  // namespace

std::string to_text(const Space& space, const Tuple& tuple) {
  std::string out;
  for (const auto& [a, v] : tuple) out += (out.empty() ? "" : " ") + std::string(axis(a).name) + "=" + space.text(a, v);
  return out;
}

std::vector<Point> covering_array(const Space& space, Constraints& constraints, const EnumerationBlock& block, int strength,
                                  CoverReport& report) {
  const int factors = static_cast<int>(RowBuilder::factors_of(block).size());
  report.strength = std::min(strength, factors);
  std::vector<Point> rows;
  if (factors == 0) {
    each_point(space, constraints, block, [&](const Point& point, int constraint) {
      if (constraint == 0) rows.push_back(point);
    });
  } else {
    rows = RowBuilder(space, constraints, block, report.strength).build(report);
  }
  report.points = static_cast<std::int64_t>(rows.size());
  return rows;
}

std::vector<std::size_t> covering_subset(const Space& space, const Constraints& constraints,
                                         const std::vector<Point>& canonical, const std::vector<int>& constraint,
                                         int strength, CoverReport& report) {
  // A consumer equal to its producer counts under its own name. Then: local value numbers of the axes that vary.
  std::vector<Point> points = canonical;
  for (auto& point : points) at(point, AxisId::consumer) = space.consumer_of(point);
  std::vector<std::size_t> factors, sizes;
  std::vector<std::vector<std::uint16_t>> values;
  std::vector<std::vector<int>> local;
  for (std::size_t a = 0; a < axis_count; ++a) {
    std::vector<int> number;
    std::vector<std::uint16_t> present;
    for (const auto& point : points) {
      if (number.size() <= point[a]) number.resize(point[a] + std::size_t{1}, -1);
      if (number[point[a]] < 0) number[point[a]] = static_cast<int>(present.size()), present.push_back(point[a]);
    }
    if (present.size() < 2) continue;
    factors.push_back(a), sizes.push_back(present.size());
    values.push_back(std::move(present)), local.push_back(std::move(number));
  }
  std::vector<std::size_t> chosen;
  if (points.empty()) return chosen;
  report.strength = std::min<int>(strength, static_cast<int>(factors.size()));
  if (factors.empty()) {
    for (std::size_t i = 0; i < points.size() && chosen.empty(); ++i) {
      if (constraint[i] == 0) chosen.push_back(i);
    }
    report.points = static_cast<std::int64_t>(chosen.size());
    return chosen;
  }
  const Subsets subsets(sizes, report.strength);
  const auto digits = [&](const Point& point) {
    std::array<int, axis_count> out{};
    for (std::size_t f = 0; f < factors.size(); ++f) out[f] = local[f][point[factors[f]]];
    return out;
  };

  enum : std::uint8_t { absent, open, done, stopped };
  std::vector<std::uint8_t> state(subsets.total, absent);
  std::vector<std::size_t> active;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (constraint[i] != 0) continue;
    active.push_back(i);
    const auto d = digits(points[i]);
    for (const auto& subset : subsets.all) {
      auto& mark = state[subsets.index(subset, d)];
      report.tuples += mark == absent;
      mark = open;
    }
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (constraint[i] == 0) continue;
    const auto d = digits(points[i]);
    for (const auto& subset : subsets.all) {
      auto& mark = state[subsets.index(subset, d)];
      if (mark != absent) continue;
      mark = stopped;
      CoverReport::Excluded out;
      for (const int f : subset.factors) {
        const auto a = factors[static_cast<std::size_t>(f)];
        out.tuple.emplace_back(static_cast<AxisId>(a), points[i][a]);
      }
      out.constraint = constraints.rules()[static_cast<std::size_t>(constraint[i]) - 1].name;
      report.excluded.push_back(std::move(out));
    }
  }

  // Greedy by falling thresholds: each pass takes every point that still adds at least that many tuples.
  const auto gain_of = [&](std::size_t i) {
    const auto d = digits(points[i]);
    int gain = 0;
    for (const auto& subset : subsets.all) gain += state[subsets.index(subset, d)] == open;
    return gain;
  };
  int threshold = static_cast<int>(subsets.all.size());
  while (!active.empty() && threshold > 0) {
    std::vector<std::size_t> left;
    int best = 0;
    for (const std::size_t i : active) {
      const int gain = gain_of(i);
      if (gain >= threshold) {
        const auto d = digits(points[i]);
        for (const auto& subset : subsets.all) state[subsets.index(subset, d)] = done;
        chosen.push_back(i);
      } else if (gain > 0) {
        left.push_back(i);
        best = std::max(best, gain);
      }
    }
    active = std::move(left);
    threshold = std::min(best, std::max(1, threshold * 7 / 8));
  }
  std::sort(chosen.begin(), chosen.end());
  report.points = static_cast<std::int64_t>(chosen.size());
  return chosen;
}

}  // namespace kvcts::matrix
