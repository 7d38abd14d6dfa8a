#include "diagnose/findings/findings.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "case/text.hpp"

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
using Sort = std::tuple<int, Who::Kind, Who::Kind, std::uint8_t, std::uint8_t, int, std::string, std::uint8_t, int, bool>;

bool moved(const Fact& fact) { return fact.should.kind == Who::Kind::element && fact.is.kind == Who::Kind::element; }

Sort sort_of(const Fact& fact) {
  const bool other_byte = moved(fact) && fact.is.byte != fact.should.byte;
  const int times = moved(fact) && fact.is.times != fact.should.times ? 1 + fact.is.times : 0;
  return {fact.memory, fact.should.kind, fact.is.kind, fact.should.kind == Who::Kind::constant ? fact.should.value : 0,
          fact.is.kind == Who::Kind::constant ? fact.is.value : 0, times, fact.is.text, other_byte,
          // Bytes that no layout places are counted from where their region begins.
          fact.should.kind != Who::Kind::element && fact.should.at == Coord{} ? fact.region : -1,
          // One for all tokens and heads has no place in a product of them.
          fact.should.at[Axis::head] == none};
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

/// Per content axis what each coordinate became; nothing: it became several things.
using Table = std::unordered_map<std::int64_t, std::int64_t>;
using Tables = std::array<std::optional<Table>, content_axes.size()>;

/// False: the coordinate became something else before.
bool put(Table& table, std::int64_t should, std::int64_t is) {
  const auto [at, added] = table.try_emplace(should, is);
  return added || at->second == is;
}

Tables tables_of(const std::vector<Fact>& facts, const Indices& some) {
  Tables out;
  for (std::size_t a = 0; a < out.size(); ++a) {
    Table& table = out[a].emplace();
    std::set<std::array<std::int64_t, 3>> seen;  // facts are often alike
    std::array<std::int64_t, 3> last{INT64_MIN, 0, 0};
    for (const std::size_t i : some) {
      const std::int64_t should = facts[i].should.at[content_axes[a]], is = facts[i].is.at[content_axes[a]];
      // Both sides advance along the channels, if their codes have one width.
      const std::int64_t size = content_axes[a] == Axis::channel && facts[i].bits == facts[i].is_bits
                                    ? std::max<std::int64_t>(1, facts[i].channels)
                                    : 1;
      if (std::exchange(last, {should, is, size}) == std::array{should, is, size} || !seen.insert(last).second) continue;
      bool holds = true;
      for (std::int64_t c = 0; c < size && holds; ++c) holds = put(table, should + c, is + c);
      if (holds) continue;
      out[a].reset();
      break;
    }
  }
  return out;
}

Tables joined(const Tables& one, const Tables& other) {
  Tables out = one;
  for (std::size_t a = 0; a < out.size(); ++a) {
    if (!other[a]) out[a].reset();
    if (!out[a]) continue;
    for (const auto& [should, is] : *other[a]) {
      if (put(*out[a], should, is)) continue;
      out[a].reset();
      break;
    }
  }
  return out;
}

Maps maps_of(const Tables& tables) {
  Maps out;
  for (std::size_t a = 0; a < tables.size(); ++a) {
    Map map;
    map.kind = Map::Kind::tangle;
    if (tables[a]) map = map_of({tables[a]->begin(), tables[a]->end()});
    if (map.kind != Map::Kind::same) out.emplace(content_axes[a], std::move(map));
  }
  return out;
}

/// Facts that one set of maps describes.
struct Part {
  Indices facts;
  Tables tables;
  Maps maps;
  Part(Indices which, Tables of) : facts(std::move(which)), tables(std::move(of)), maps(maps_of(tables)) {}
  Part(const std::vector<Fact>& all, Indices which) : Part(which, tables_of(all, which)) {}
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
    Part part(facts, std::move(group));
    if (tangled(part.maps)) return std::nullopt;
    const auto alike = std::find_if(out.begin(), out.end(), [&](Part& other) {
      Part both({}, joined(other.tables, part.tables));
      if (tangled(both.maps) || cost(both.maps) > std::max(cost(other.maps), cost(part.maps)) + 0.5) return false;
      other.tables = std::move(both.tables), other.maps = std::move(both.maps);
      return true;
    });
    if (alike != out.end()) {
      alike->facts.insert(alike->facts.end(), part.facts.begin(), part.facts.end());
    } else {
      if (out.size() == most_parts) return std::nullopt;
      out.push_back(std::move(part));
    }
  }
  return out;
}

/// One set of maps for all, or by the axes that differ, or by the value of one axis: the cheapest.
std::vector<Part> parts_of(const std::vector<Fact>& facts, const Indices& some) {
  std::vector<Part> best{Part(facts, some)};
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

/// Every value that these facts of content must have.
Scope universe_of(const std::vector<Fact>& facts, const Indices& all) {
  Scope out;
  for (int a = 0; a < axis_count; ++a) {
    auto& values = out[static_cast<Axis>(a)];
    for (const std::size_t i : all) values.push_back(facts[i].should.at[static_cast<Axis>(a)]);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  out[Axis::channel] = channels_of(facts, all);
  return out;
}

Scope joined(Scope one, const Scope& other) {
  for (const auto& [axis, values] : other) {
    std::vector<std::int64_t> both;
    std::ranges::set_union(one[axis], values, std::back_inserter(both));
    one[axis] = std::move(both);
  }
  return one;
}

Scope places_of(const std::vector<Plane>& planes) {
  Scope out;
  for (int a = 0; a < axis_count; ++a) {
    const auto axis = static_cast<Axis>(a);
    std::set<std::int64_t> values;
    for (const Plane& plane : planes)
      for (std::int64_t value = plane.low[axis]; value < plane.high[axis]; ++value) values.insert(value);
    out[axis].assign(values.begin(), values.end());
  }
  return out;
}

std::map<Axis, std::int64_t> sizes_of(const Scope& universe) {
  std::map<Axis, std::int64_t> out;
  for (const auto& [axis, values] : universe)
    if (!values.empty() && values.back() != none) out[axis] = values.back() + 1;
  return out;
}

/// Findings of one memory.
class Memory {
 public:
  Memory(const std::vector<Fact>& facts, const Indices& all, const Names& names)
      : facts_(facts), all_(all), names_(names), planes_(planes_of(facts, all, names)) {
    std::map<std::int64_t, Indices> parts;
    for (const std::size_t i : all)
      if (facts[i].should.kind == Who::Kind::element) parts[facts[i].should.at[Axis::component]].push_back(i);
    for (const auto& [component, part] : parts) {
      const Scope& one = content_[component] = universe_of(facts, part);
      universe_ = joined(std::move(universe_), one);
    }
  }

  /// Facts that were brought here from somewhere, in axes, in strides or in offsets.
  /// `elsewhere`: in strides.
  std::vector<Finding> shortest(const Indices& brought, bool& elsewhere) const {
    constexpr std::size_t few = 3, many = 32;
    std::vector<Finding> best = sorted(brought);
    const auto vague = [](const std::vector<Finding>& some) {
      return std::ranges::any_of(some, [](const Finding& one) { return one.vague; });
    };
    if (best.size() <= few && !vague(best)) return best;
    for (const bool read : {false, true}) {
      const std::vector<Fit> fits = fits_of(facts_, brought, read);
      if (fits.empty()) continue;
      std::vector<Finding> some;
      Indices left = brought;
      for (const Fit& fit : fits) {
        some.push_back(words_of(facts_, fit, universe_, names_));
        Indices rest;
        std::ranges::set_difference(left, fit.facts, std::back_inserter(rest));
        left = std::move(rest);
      }
      for (Finding& one : sorted(left)) some.push_back(std::move(one));
      if (std::pair(vague(some), some.size()) < std::pair(vague(best), best.size()))
        best = std::move(some), elsewhere = true;
    }
    if (best.size() <= few && !vague(best)) return best;
    const std::vector<Flat> flats = flats_of(facts_, brought);
    if (!flats.empty() && (flats.size() < best.size() || (vague(best) && flats.size() <= many))) {
      best.clear(), elsewhere = false;
      for (const Flat& flat : flats) best.push_back(words_of(flat, names_));
    }
    return best;
  }

  /// Facts of one sort.
  std::vector<Finding> findings(const Indices& group, std::size_t most = most_boxes) const {
    std::vector<Finding> out;
    if (!moved(facts_[group.front()])) {
      for (const Box& box : boxes_of(facts_, group, all_, planes_, most))
        out.push_back(words_of(facts_, box, {}, universe(box), names_));
      return out;
    }
    std::vector<Part> parts = parts_of(facts_, group);
    // Two axes in the other order look like many maps.
    const auto sizes = sizes_of(universe_);
    const auto turned = cost(parts) > 4 ? transposition_of(facts_, group, sizes) : std::nullopt;
    if (turned && fills(*turned, facts_, all_, sizes)) {
      Indices left;
      std::set_difference(group.begin(), group.end(), turned->facts.begin(), turned->facts.end(), std::back_inserter(left));
      std::vector<Part> rest = left.empty() ? std::vector<Part>{} : parts_of(facts_, left);
      if (3 + cost(rest) < cost(parts)) {
        out.push_back(words_of(facts_, *turned, universe_, names_));
        parts = std::move(rest);
      }
    }
    for (const Part& part : parts) {
      for (const Box& box : boxes_of(facts_, part.facts, all_, planes_, most_boxes)) {
        // The map on the box alone may be simpler.
        const Maps maps = part.maps.empty() ? Maps{} : maps_of(tables_of(facts_, box.facts));
        out.push_back(words_of(facts_, box, maps, universe(box), names_));
        out.back().vague = tangled(maps);
      }
    }
    return out;
  }

 private:
  static std::vector<Plane> planes_of(const std::vector<Fact>& facts, const Indices& all, const Names& names) {
    const auto found = names.planes.find(facts[all.front()].memory);
    return found == names.planes.end() ? std::vector<Plane>{} : found->second;
  }
  /// All that a scope of these facts could name: content where that was meant, else places; of their components.
  Scope universe(const Box& box) const {
    const bool content = facts_[box.facts.front()].should.kind == Who::Kind::element;
    const std::map<std::int64_t, Scope>& all = content ? content_ : places();
    Scope out;
    for (const std::int64_t component : box.scope.at(Axis::component))
      if (const auto known = all.find(component); known != all.end()) out = joined(std::move(out), known->second);
    out[Axis::component].clear();
    for (const auto& [component, scope] : all) out[Axis::component].push_back(component);
    return out;
  }
  /// By component. A pool may have millions of blocks: made when it is first asked for.
  const std::map<std::int64_t, Scope>& places() const {
    if (places_.empty()) {
      std::map<std::int64_t, std::vector<Plane>> parts;
      for (const Plane& plane : planes_) parts[plane.low[Axis::component]].push_back(plane);
      for (const auto& [component, part] : parts) places_.emplace(component, places_of(part));
    }
    return places_;
  }

  /// Facts of several sorts.
  std::vector<Finding> sorted(const Indices& some) const {
    std::map<Sort, Indices> sorts;
    for (const std::size_t i : some) sorts[sort_of(facts_[i])].push_back(i);
    std::vector<Finding> out;
    for (const auto& [sort, group] : sorts)
      for (Finding& one : findings(group)) out.push_back(std::move(one));
    return out;
  }

  const std::vector<Fact>& facts_;
  const Indices& all_;
  const Names& names_;
  const std::vector<Plane> planes_;
  Scope universe_;
  std::map<std::int64_t, Scope> content_;  ///< universe_, by component
  mutable std::map<std::int64_t, Scope> places_;
};

bool has_origin(const Fact& fact) { return fact.is.kind == Who::Kind::element || fact.is.kind == Who::Kind::poison; }

/// Of the values that bound the wrong content on each axis: "layer 1, tokens 0..3, 8" are three.
std::size_t count_extents(const std::vector<Fact>& facts, const Names& names) {
  std::size_t out = 0;
  for (const Axis axis : content_axes) {
    std::set<std::int64_t> wrong, all;
    for (const Fact& fact : facts) {
      if (fact.memory >= names.first_output || names.sources.contains(fact.memory)) continue;
      for (std::int64_t i = 0; i < (axis == Axis::channel ? std::max<std::int64_t>(1, fact.channels) : 1); ++i) {
        all.insert(fact.should.at[axis] + i);
        if (fact.wrong) wrong.insert(fact.should.at[axis] + i);
      }
    }
    if (wrong == all) continue;
    for (const std::int64_t value : wrong) out += !wrong.contains(value - 1);
  }
  return out;
}

/// One property of pieces that tells the wrong ones from the right ones is said in place of the first `many` findings, but
/// not in place of one that is as simple. Otherwise it is noted: other cases may leave only one.
void say_by_piece(const std::vector<Fact>& facts, const Names& names, std::vector<Finding>& findings, std::ptrdiff_t many) {
  if (many == 0 || names.sources.empty()) return;
  std::vector<PieceRule> rules = piece_rules(facts, names);
  if (rules.empty()) return;
  const bool simple = many == 1 && !findings.front().vague && count_extents(facts, names) <= 3;
  const bool one = std::ranges::all_of(rules, [&](const PieceRule& rule) { return rule.of == rules.front().of; });
  if (one && !(simple && rules.front().whole)) {
    Finding said;
    std::set<int> memories;
    for (const Fact& fact : facts) {
      if (fact.wrong && fact.memory < names.first_output) said.bytes += fact.bytes;
      if (fact.memory < names.first_output && !names.sources.contains(fact.memory)) memories.insert(fact.memory);
    }
    if (memories.size() == 1) said.text = names.memories.at(static_cast<std::size_t>(*memories.begin())) + ": ";
    said.text += rules.front().said + " (" + rules.front().share + ", " + text::thousands(said.bytes) +
                 (said.bytes == 1 ? " byte)" : " bytes)");
    findings.erase(findings.begin(), findings.begin() + many);
    findings.insert(findings.begin(), std::move(said));
  } else if (simple) {
    std::erase_if(rules, [](const PieceRule& rule) { return !rule.part; });
  }
  for (PieceRule& rule : rules) findings.front().pieces.push_back(std::move(rule.words));
}

}  // namespace

std::vector<Finding> what_happened(const std::vector<Fact>& told, const Names& names) {
  const std::vector<Fact> facts = cut_alike(told);
  std::map<int, Indices> of_memory;
  std::map<int, std::map<Sort, Indices>> groups;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    of_memory[facts[i].memory].push_back(i);
    if (facts[i].wrong) groups[facts[i].memory][sort_of(facts[i])].push_back(i);
  }
  std::vector<Finding> out;
  std::ptrdiff_t outputs = 0;
  for (const auto& [number, sorts] : groups) {
    const Memory memory(facts, of_memory[number], names);
    Indices brought;
    for (const auto& [sort, group] : sorts)
      if (has_origin(facts[group.front()])) brought.insert(brought.end(), group.begin(), group.end());
    std::ranges::sort(brought);
    bool elsewhere = false;
    std::vector<Finding> found = memory.shortest(brought, elsewhere), rest;
    for (const auto& [sort, group] : sorts) {
      const Fact& first = facts[group.front()];
      if (has_origin(first)) continue;
      // Where nothing came follows from where all of it went.
      const std::size_t most = elsewhere && first.is.kind == Who::Kind::nothing ? 1 : most_boxes;
      for (Finding& one : memory.findings(group, most)) rest.push_back(std::move(one));
    }
    for (auto* list : {&found, &rest})
      for (Finding& one : *list) out.push_back(std::move(one));
    if (number < names.first_output) outputs = static_cast<std::ptrdiff_t>(out.size());
  }
  const auto larger = [](const Finding& a, const Finding& b) { return a.bytes > b.bytes; };
  std::stable_sort(out.begin(), out.begin() + outputs, larger);
  std::stable_sort(out.begin() + outputs, out.end(), larger);
  say_by_piece(facts, names, out, outputs);
  return out;
}

}  // namespace kvcts::findings
