#include "diagnose/findings/findings.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

namespace kvcts::findings {

namespace {

using Indices = std::vector<std::size_t>;
using Maps = std::map<Axis, Map>;

constexpr std::array content_axes{Axis::component, Axis::request, Axis::layer,  Axis::kv,
                                  Axis::token,     Axis::head,    Axis::channel};
/// Axes of a place by which what happened may differ.
constexpr std::array parting_axes{Axis::component, Axis::request, Axis::kv,   Axis::layer,
                                  Axis::head,      Axis::block,   Axis::slot, Axis::token};
constexpr std::size_t most_boxes = 6, most_parts = 6;

/// What kind of thing happened to a fact, before any map is looked for.
using Sort = std::tuple<int, Who::Kind, Who::Kind, std::uint8_t, std::uint8_t, int, std::string, std::uint8_t>;

bool moved(const Fact& fact) { return fact.should.kind == Who::Kind::element && fact.is.kind == Who::Kind::element; }

Sort sort_of(const Fact& fact) {
  const bool other_byte = moved(fact) && fact.is.byte != fact.should.byte;
  const int times = moved(fact) && fact.is.times != fact.should.times ? 1 + fact.is.times : 0;
  return {fact.memory,
          fact.should.kind,
          fact.is.kind,
          fact.should.kind == Who::Kind::constant ? fact.should.value : 0,
          fact.is.kind == Who::Kind::constant ? fact.is.value : 0,
          times,
          fact.is.text,
          other_byte};
}

std::uint32_t differing(const Fact& fact) {
  std::uint32_t out = 0;
  for (const Axis axis : content_axes) out |= (fact.should.at[axis] != fact.is.at[axis] ? 1u : 0u) << static_cast<int>(axis);
  return out;
}

/// Entries that are not the entry before plus one on both sides.
std::size_t ranges(const Map& map) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < map.table.size(); ++i)
    out += i == 0 || map.table[i].first != map.table[i - 1].first + 1 || map.table[i].second != map.table[i - 1].second + 1;
  return out;
}

double cost(const Map& map) {
  switch (map.kind) {
    case Map::Kind::same:
      return 0;
    case Map::Kind::shift:
      return 1;
    case Map::Kind::always:
      return 1.2;
    case Map::Kind::exchange:
    case Map::Kind::multiple:
      return 1.5;
    case Map::Kind::remainder:
    case Map::Kind::rounded:
    case Map::Kind::reversed:
      return 1.6;
    case Map::Kind::table:
      return 1 + static_cast<double>(ranges(map));
    case Map::Kind::tangle:
      return 100;
  }
  return 100;
}
double cost(const Maps& maps) {
  double out = 1;
  for (const auto& [axis, map] : maps) out += cost(map);
  return out;
}

Maps maps_of(const std::vector<Fact>& facts, const Indices& some) {
  Maps out;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs(some.size());
  for (const Axis axis : content_axes) {
    for (std::size_t i = 0; i < some.size(); ++i) pairs[i] = {facts[some[i]].should.at[axis], facts[some[i]].is.at[axis]};
    if (Map map = map_of(pairs); map.kind != Map::Kind::same) out.emplace(axis, std::move(map));
  }
  return out;
}

/// Facts that one set of maps describes.
struct Part {
  Indices facts;
  Maps maps;
};

double cost(const std::vector<Part>& parts) {
  double out = 0;
  for (const Part& part : parts) out += cost(part.maps);
  return out;
}

bool tangled(const Maps& maps) {
  return std::any_of(maps.begin(), maps.end(), [](const auto& one) { return one.second.kind == Map::Kind::tangle; });
}

/// By the values of one axis, parts that obey the same maps together; none if that does not pay.
std::optional<std::vector<Part>> parted_by(const std::vector<Fact>& facts, const Indices& some, Axis axis) {
  std::map<std::int64_t, Indices> by_value;
  for (const std::size_t i : some) by_value[facts[i].should.at[axis]].push_back(i);
  if (by_value.size() < 2) return std::nullopt;
  std::vector<Part> out;
  for (auto& [value, group] : by_value) {
    Maps maps = maps_of(facts, group);
    if (tangled(maps)) return std::nullopt;
    const auto alike = std::find_if(out.begin(), out.end(), [&](const Part& part) {
      Indices both = part.facts;
      both.insert(both.end(), group.begin(), group.end());
      const Maps joined = maps_of(facts, both);
      return !tangled(joined) && cost(joined) <= std::max(cost(part.maps), cost(maps)) + 0.5;
    });
    if (alike == out.end()) {
      if (out.size() == most_parts) return std::nullopt;
      out.push_back({group, std::move(maps)});
    } else {
      alike->facts.insert(alike->facts.end(), group.begin(), group.end());
      alike->maps = maps_of(facts, alike->facts);
    }
  }
  return out;
}

/// One set of maps for all, or by the axes that differ, or by the value of one axis: the cheapest.
std::vector<Part> parts_of(const std::vector<Fact>& facts, const Indices& some) {
  std::vector<Part> best{{some, maps_of(facts, some)}};
  const auto consider = [&](std::vector<Part> parts) {
    if (cost(parts) < cost(best)) best = std::move(parts);
  };
  std::map<std::uint32_t, Indices> by_axes;
  for (const std::size_t i : some) by_axes[differing(facts[i])].push_back(i);
  if (by_axes.size() > 1 && by_axes.size() <= most_parts) {
    std::vector<Part> parts;
    for (const auto& [mask, group] : by_axes)
      for (Part& part : parts_of(facts, group)) parts.push_back(std::move(part));
    consider(std::move(parts));
  }
  for (const Axis axis : parting_axes)
    if (auto parts = parted_by(facts, some, axis)) consider(std::move(*parts));
  for (Part& part : best) std::sort(part.facts.begin(), part.facts.end());
  return best;
}

/// Every value that content of a memory must have.
Scope universe_of(const std::vector<Fact>& facts, const Indices& all) {
  Scope out;
  for (int a = 0; a < axis_count; ++a) {
    auto& values = out[static_cast<Axis>(a)];
    for (const std::size_t i : all)
      if (facts[i].should.kind == Who::Kind::element) values.push_back(facts[i].should.at[static_cast<Axis>(a)]);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  return out;
}

}  // namespace

namespace {

std::map<Axis, std::int64_t> sizes_of(const Scope& universe) {
  std::map<Axis, std::int64_t> out;
  for (const auto& [axis, values] : universe)
    if (!values.empty() && values.back() != none) out[axis] = values.back() + 1;
  return out;
}

}  // namespace

std::vector<Finding> what_happened(const std::vector<Fact>& facts, const Names& names) {
  std::map<int, Indices> of_memory;
  std::map<Sort, Indices> groups;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    of_memory[facts[i].memory].push_back(i);
    if (facts[i].wrong) groups[sort_of(facts[i])].push_back(i);
  }
  std::map<int, Scope> universes;
  for (const auto& [memory, all] : of_memory) universes[memory] = universe_of(facts, all);
  std::vector<Finding> out;
  std::size_t outputs = SIZE_MAX;
  for (const auto& [sort, group] : groups) {
    const int memory = facts[group.front()].memory;  // in their order
    if (memory >= names.first_output) outputs = std::min(outputs, out.size());
    std::vector<Part> parts{{group, {}}};
    if (moved(facts[group.front()])) {
      parts = parts_of(facts, group);
      // Two axes in the other order look like many maps.
      const auto turned = cost(parts) > 4 ? transposition_of(facts, group, sizes_of(universes[memory])) : std::nullopt;
      if (turned) {
        Indices left;
        std::set_difference(group.begin(), group.end(), turned->facts.begin(), turned->facts.end(),
                            std::back_inserter(left));
        std::vector<Part> rest = left.empty() ? std::vector<Part>{} : parts_of(facts, left);
        if (3 + cost(rest) < cost(parts)) {
          out.push_back(words_of(facts, *turned, universes[memory], names));
          parts = std::move(rest);
        }
      }
    }
    for (const Part& part : parts) {
      for (const Box& box : boxes_of(facts, part.facts, of_memory[memory], most_boxes)) {
        // The map on the box alone may be simpler.
        const Maps maps = part.maps.empty() ? Maps{} : maps_of(facts, box.facts);
        out.push_back({words_of(facts, box, maps, universes[memory], names), box.bytes, tangled(maps)});
      }
    }
  }
  const auto larger = [](const Finding& a, const Finding& b) { return a.bytes > b.bytes; };
  const auto last = out.begin() + static_cast<std::ptrdiff_t>(std::min(outputs, out.size()));
  std::stable_sort(out.begin(), last, larger);
  std::stable_sort(last, out.end(), larger);
  return out;
}

}  // namespace kvcts::findings
