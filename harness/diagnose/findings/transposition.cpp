#include <algorithm>
#include <array>
#include <set>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

namespace {

/// Both coordinates within a block of slots. A token of another block: none.
std::optional<std::pair<std::int64_t, std::int64_t>> along(const Fact& fact, Axis axis) {
  if (axis != Axis::slot) return std::pair(fact.should.at[axis], fact.is.at[axis]);
  const std::int64_t slot = fact.should.at[Axis::slot];
  if (slot == none) return std::nullopt;
  return std::pair(slot, slot + fact.is.at[Axis::token] - fact.should.at[Axis::token]);
}

bool elsewhere(const Fact& fact, Axis a, Axis b) {
  for (const Axis axis : {Axis::component, Axis::request, Axis::layer, Axis::kv, Axis::head, Axis::channel})
    if (axis != a && axis != b && fact.should.at[axis] != fact.is.at[axis]) return true;
  return a != Axis::slot && b != Axis::slot && fact.should.at[Axis::token] != fact.is.at[Axis::token];
}

bool predicted(const Fact& fact, Axis a, Axis b, std::int64_t extent_a, std::int64_t extent_b) {
  const auto x = along(fact, a), y = along(fact, b);
  if (!x || !y || elsewhere(fact, a, b)) return false;
  const std::int64_t flat = x->first * extent_b + y->first;
  return x->second == flat % extent_a && y->second == flat / extent_a;
}

}  // namespace

std::optional<Transposition> transposition_of(const std::vector<Fact>& facts, const std::vector<std::size_t>& some,
                                              const std::map<Axis, std::int64_t>& sizes) {
  std::optional<Transposition> best;
  const auto size = [&](Axis axis) {
    const auto found = sizes.find(axis);
    return found == sizes.end() ? std::int64_t{0} : found->second;
  };
  for (const Axis a : {Axis::layer, Axis::kv, Axis::slot, Axis::head}) {
    for (const Axis b : {Axis::layer, Axis::kv, Axis::slot, Axis::head}) {
      if (a == b || size(a) < 2 || size(b) < 2) continue;
      Transposition one{a, b, {}};
      for (const std::size_t i : some)
        if (predicted(facts[i], a, b, size(a), size(b))) one.facts.push_back(i);
      if (one.facts.size() * 2 >= some.size() && (!best || one.facts.size() > best->facts.size())) best = std::move(one);
    }
  }
  return best;
}

bool fills(const Transposition& turned, const std::vector<Fact>& facts, const std::vector<std::size_t>& all,
           const std::map<Axis, std::int64_t>& sizes) {
  std::map<Axis, std::set<std::int64_t>> scope;
  for (const Axis axis : {Axis::request, Axis::component, Axis::layer, Axis::kv, Axis::head})
    for (const std::size_t i : turned.facts) scope[axis].insert(facts[i].should.at[axis]);
  return std::ranges::all_of(all, [&](std::size_t i) {
    const Fact& fact = facts[i];
    const bool inside = fact.should.kind == Who::Kind::element && std::ranges::all_of(scope, [&](const auto& one) {
                          const auto& [axis, values] = one;
                          return axis == turned.a || axis == turned.b || values.contains(fact.should.at[axis]);
                        });
    return !inside || (fact.is.kind == Who::Kind::element && fact.is.byte == fact.should.byte &&
                       predicted(fact, turned.a, turned.b, sizes.at(turned.a), sizes.at(turned.b)));
  });
}

}  // namespace kvcts::findings
