// A set of facts as products of sets: cut along the axis whose values have the fewest shapes.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "diagnose/findings/facts.hpp"

namespace kvcts::findings {

namespace {

constexpr std::array cut_axes{Axis::component, Axis::request, Axis::layer, Axis::kv,     Axis::block,
                              Axis::head,      Axis::token,   Axis::slot,  Axis::channel};
constexpr int deepest = 6;

using Indices = std::vector<std::size_t>;

class Cutter {
 public:
  Cutter(const std::vector<Fact>& facts, std::size_t most) : facts_(facts), most_(most) {}

  std::vector<Box> cut(const Indices& chosen, const Indices& all, int depth) const {
    Box whole = box(chosen, all);
    if (whole.others == 0 || depth == deepest) return {std::move(whole)};
    std::vector<Cut> best;
    for (const Axis axis : cut_axes) {
      std::vector<Cut> cuts;
      for (Indices& group : alike(chosen, axis)) {
        Indices near = beside(group, all, axis);
        Box one = box(group, near);
        cuts.push_back({std::move(near), std::move(one)});
      }
      if (cuts.size() > 1 && (best.empty() || cost(cuts) < cost(best))) best = std::move(cuts);
    }
    if (best.empty() || cost(best).first >= whole.others) return {std::move(whole)};
    std::vector<Box> out;
    for (const Cut& one : best) {
      for (Box& part : cut(one.box.facts, one.all, depth + 1)) out.push_back(std::move(part));
      if (out.size() > most_) return {std::move(whole)};
    }
    return out;
  }

 private:
  struct Cut {
    Indices all;  ///< that have these values
    Box box;
  };
  static std::pair<std::int64_t, std::size_t> cost(const std::vector<Cut>& cuts) {
    std::int64_t others = 0;
    for (const Cut& cut : cuts) others += cut.box.others;
    return {others, cuts.size()};
  }

  /// Those of `all` that share the group's values of an axis.
  Indices beside(const Indices& group, const Indices& all, Axis axis) const {
    std::unordered_set<std::int64_t> values;
    for (const std::size_t i : group) values.insert(facts_[i].should.at[axis]);
    Indices out;
    for (const std::size_t i : all)
      if (values.contains(facts_[i].should.at[axis])) out.push_back(i);
    return out;
  }

  Box box(const Indices& chosen, const Indices& all) const {
    Box out;
    out.facts = chosen;
    std::map<Axis, std::unordered_set<std::int64_t>> sets;
    for (const std::size_t i : chosen) {
      out.bytes += facts_[i].bytes;
      for (const Axis axis : cut_axes) sets[axis].insert(facts_[i].should.at[axis]);
    }
    std::int64_t inside = 0;
    for (const std::size_t i : all) {
      const bool in = std::all_of(cut_axes.begin(), cut_axes.end(),
                                  [&](Axis axis) { return sets[axis].contains(facts_[i].should.at[axis]); });
      if (in) inside += facts_[i].bytes;
    }
    const Who& should = facts_[chosen.front()].should;
    out.others = should.kind == Who::Kind::element ? inside - out.bytes
                 : should.at == Coord{}            ? span(chosen) - out.bytes
                                                   : left_alone(chosen, sets, out.bytes);
    for (const auto& [axis, values] : sets) {
      out.scope[axis].assign(values.begin(), values.end());
      std::sort(out.scope[axis].begin(), out.scope[axis].end());
    }
    return out;
  }

  /// Bytes from the first to the last.
  std::int64_t span(const Indices& chosen) const {
    std::int64_t begin = INT64_MAX, end = INT64_MIN;
    for (const std::size_t i : chosen) {
      begin = std::min(begin, facts_[i].offset);
      end = std::max(end, facts_[i].offset + facts_[i].bytes);
    }
    return end - begin;
  }

  /// Places where nothing was meant are facts only where something is: the rest of the product counts as it does on average.
  std::int64_t left_alone(const Indices& chosen, const std::map<Axis, std::unordered_set<std::int64_t>>& sets,
                          std::int64_t bytes) const {
    double product = 1;
    for (const auto& [axis, values] : sets) product *= axis == Axis::channel ? 1 : static_cast<double>(values.size());
    std::set<std::array<std::int64_t, axis_count>> there;
    for (const std::size_t i : chosen) {
      auto at = facts_[i].should.at.at;
      at[static_cast<std::size_t>(Axis::channel)] = none;
      there.insert(at);
    }
    const auto count = static_cast<double>(there.size());
    return static_cast<std::int64_t>((product - count) / count * static_cast<double>(bytes));
  }

  /// The chosen facts by value of an axis; values whose facts have the same sets on all other axes together.
  std::vector<Indices> alike(const Indices& chosen, Axis axis) const {
    std::map<std::int64_t, Indices> by_value;
    for (const std::size_t i : chosen) by_value[facts_[i].should.at[axis]].push_back(i);
    if (by_value.size() < 2) return {};
    std::map<std::vector<std::vector<std::int64_t>>, Indices> by_shape;
    for (const auto& [value, some] : by_value) {
      std::vector<std::vector<std::int64_t>> shape;
      for (const Axis other : cut_axes) {
        // A block holds other tokens than the next: they follow from one another.
        if (other == axis || follows(axis, other)) continue;
        std::set<std::int64_t> values;
        for (const std::size_t i : some) values.insert(facts_[i].should.at[other]);
        shape.emplace_back(values.begin(), values.end());
      }
      Indices& group = by_shape[shape];
      group.insert(group.end(), some.begin(), some.end());
      if (by_shape.size() > most_) return {};
    }
    std::vector<Indices> out;
    for (auto& [shape, group] : by_shape) {
      std::sort(group.begin(), group.end());
      out.push_back(std::move(group));
    }
    return out;
  }

  static bool follows(Axis axis, Axis other) {
    return (axis == Axis::block && other == Axis::token) ||
           (axis == Axis::token && (other == Axis::block || other == Axis::slot)) ||
           (axis == Axis::slot && other == Axis::token);
  }

  const std::vector<Fact>& facts_;
  std::size_t most_;
};

}  // namespace

std::vector<Box> boxes_of(const std::vector<Fact>& facts, const Indices& chosen, const Indices& all, std::size_t most) {
  return Cutter(facts, most).cut(chosen, all, 0);
}

}  // namespace kvcts::findings
