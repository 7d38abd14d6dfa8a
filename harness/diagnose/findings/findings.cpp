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
using Maps = std::map<ContentAxis, AxisMap>;

constexpr std::array content_axes{ContentAxis::component, ContentAxis::request, ContentAxis::layer,  ContentAxis::kv,
                                  ContentAxis::token,     ContentAxis::head,    ContentAxis::channel};
/// Axes of a place by which what happened may differ.
constexpr std::array parting_axes{ContentAxis::component, ContentAxis::request, ContentAxis::kv,   ContentAxis::layer,
                                  ContentAxis::head,      ContentAxis::block,   ContentAxis::slot, ContentAxis::token};
constexpr std::size_t most_boxes = 6, most_parts = 6;

/// What kind of thing happened to a fact, before any map is looked for.
using Sort = std::tuple<int, ByteSource::Kind, ByteSource::Kind, std::uint8_t, std::uint8_t, int, std::string, std::uint8_t,
                        int, bool>;

bool moved(const Extent& extent) {
  return extent.should.kind == ByteSource::Kind::element && extent.is.kind == ByteSource::Kind::element;
}

Sort sort_of(const Extent& extent) {
  const bool other_byte = moved(extent) && extent.is.byte != extent.should.byte;
  const int times = moved(extent) && extent.is.times != extent.should.times ? 1 + extent.is.times : 0;
  return {extent.memory, extent.should.kind, extent.is.kind,
          extent.should.kind == ByteSource::Kind::constant ? extent.should.value : 0,
          extent.is.kind == ByteSource::Kind::constant ? extent.is.value : 0, times, extent.is.text, other_byte,
          // Bytes that no layout places are counted from where their region begins.
          extent.should.kind != ByteSource::Kind::element && extent.should.at == Coordinates{} ? extent.region : -1,
          // One for all tokens and heads has no place in a product of them.
          extent.should.at[ContentAxis::head] == none};
}

std::uint32_t differing(const Extent& extent) {
  std::uint32_t out = 0;
  for (const ContentAxis axis : content_axes)
    out |= (extent.should.at[axis] != extent.is.at[axis] ? 1u : 0u) << static_cast<int>(axis);
  return out;
}

/// Entries that are not the entry before plus one on both sides.
std::size_t ranges(const AxisMap& map) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < map.table.size(); ++i)
    out += i == 0 || map.table[i].first != map.table[i - 1].first + 1 || map.table[i].second != map.table[i - 1].second + 1;
  return out;
}

double cost(const AxisMap& map) {
  switch (map.kind) {
    case AxisMap::Kind::same:
      return 0;
    case AxisMap::Kind::shift:
      return 1;
    case AxisMap::Kind::always:
      return 1.2;
    case AxisMap::Kind::exchange:
    case AxisMap::Kind::multiple:
      return 1.5;
    case AxisMap::Kind::remainder:
    case AxisMap::Kind::rounded:
    case AxisMap::Kind::reversed:
      return 1.6;
    case AxisMap::Kind::table:
      return 1 + static_cast<double>(ranges(map));
    case AxisMap::Kind::tangle:
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

Tables tables_of(const std::vector<Extent>& extents, const Indices& some) {
  Tables out;
  for (std::size_t a = 0; a < out.size(); ++a) {
    Table& table = out[a].emplace();
    std::set<std::array<std::int64_t, 3>> seen;  // facts are often alike
    std::array<std::int64_t, 3> last{INT64_MIN, 0, 0};
    for (const std::size_t i : some) {
      const std::int64_t should = extents[i].should.at[content_axes[a]], is = extents[i].is.at[content_axes[a]];
      // Both sides advance along the channels, if their codes have one width.
      const std::int64_t size = content_axes[a] == ContentAxis::channel && extents[i].bits == extents[i].is_bits
                                    ? std::max<std::int64_t>(1, extents[i].channels)
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
    AxisMap map;
    map.kind = AxisMap::Kind::tangle;
    if (tables[a]) map = map_of({tables[a]->begin(), tables[a]->end()});
    if (map.kind != AxisMap::Kind::same) out.emplace(content_axes[a], std::move(map));
  }
  return out;
}

/// Facts that one set of maps describes.
struct Part {
  Indices extents;
  Tables tables;
  Maps maps;
  Part(Indices which, Tables of) : extents(std::move(which)), tables(std::move(of)), maps(maps_of(tables)) {}
  Part(const std::vector<Extent>& all, Indices which) : Part(which, tables_of(all, which)) {}
};

double cost(const std::vector<Part>& parts) {
  double out = 0;
  for (const Part& part : parts) out += cost(part.maps);
  return out;
}

bool tangled(const Maps& maps) {
  return std::ranges::any_of(maps, [](const auto& one) { return one.second.kind == AxisMap::Kind::tangle; });
}

/// By the values of one axis, parts that obey the same maps together; none if that does not pay.
std::optional<std::vector<Part>> parted_by(const std::vector<Extent>& extents, const Indices& some, ContentAxis axis) {
  std::map<std::int64_t, Indices> by_value;
  for (const std::size_t i : some) by_value[extents[i].should.at[axis]].push_back(i);
  if (by_value.size() < 2) return std::nullopt;
  std::vector<Part> out;
  for (auto& [value, group] : by_value) {
    Part part(extents, std::move(group));
    if (tangled(part.maps)) return std::nullopt;
    const auto alike = std::ranges::find_if(out, [&](Part& other) {
      Part both({}, joined(other.tables, part.tables));
      if (tangled(both.maps) || cost(both.maps) > std::max(cost(other.maps), cost(part.maps)) + 0.5) return false;
      other.tables = std::move(both.tables), other.maps = std::move(both.maps);
      return true;
    });
    if (alike != out.end()) {
      alike->extents.insert(alike->extents.end(), part.extents.begin(), part.extents.end());
    } else {
      if (out.size() == most_parts) return std::nullopt;
      out.push_back(std::move(part));
    }
  }
  return out;
}

/// One set of maps for all, or by the axes that differ, or by the value of one axis: the cheapest.
std::vector<Part> parts_of(const std::vector<Extent>& extents, const Indices& some) {
  std::vector<Part> best{Part(extents, some)};
  const auto consider = [&](std::vector<Part> parts) {
    if (cost(parts) < cost(best)) best = std::move(parts);
  };
  std::map<std::uint32_t, Indices> by_axes;
  for (const std::size_t i : some) by_axes[differing(extents[i])].push_back(i);
  if (by_axes.size() > 1 && by_axes.size() <= most_parts) {
    std::vector<Part> parts;
    for (const auto& [mask, group] : by_axes)
      for (Part& part : parts_of(extents, group)) parts.push_back(std::move(part));
    consider(std::move(parts));
  }
  for (const ContentAxis axis : parting_axes)
    if (auto parts = parted_by(extents, some, axis)) consider(std::move(*parts));
  for (Part& part : best) std::ranges::sort(part.extents);
  return best;
}

/// Every value that these facts of content must have.
Scope universe_of(const std::vector<Extent>& extents, const Indices& all) {
  Scope out;
  for (int a = 0; a < axis_count; ++a) {
    auto& values = out[static_cast<ContentAxis>(a)];
    for (const std::size_t i : all) values.push_back(extents[i].should.at[static_cast<ContentAxis>(a)]);
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  out[ContentAxis::channel] = channels_of(extents, all);
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

Scope places_of(const std::vector<LayoutBox>& planes) {
  Scope out;
  for (int a = 0; a < axis_count; ++a) {
    const auto axis = static_cast<ContentAxis>(a);
    std::set<std::int64_t> values;
    for (const LayoutBox& plane : planes)
      for (std::int64_t value = plane.low[axis]; value < plane.high[axis]; ++value) values.insert(value);
    out[axis].assign(values.begin(), values.end());
  }
  return out;
}

std::map<ContentAxis, std::int64_t> sizes_of(const Scope& universe) {
  std::map<ContentAxis, std::int64_t> out;
  for (const auto& [axis, values] : universe)
    if (!values.empty() && values.back() != none) out[axis] = values.back() + 1;
  return out;
}

/// Findings of one memory.
class Memory {
 public:
  Memory(const std::vector<Extent>& extents, const Indices& all, const Labels& labels)
      : extents_(extents), all_(all), labels_(labels), planes_(planes_of(extents, all, labels)) {
    std::map<std::int64_t, Indices> parts;
    for (const std::size_t i : all)
      if (extents[i].should.kind == ByteSource::Kind::element)
        parts[extents[i].should.at[ContentAxis::component]].push_back(i);
    for (const auto& [component, part] : parts) {
      const Scope& one = content_[component] = universe_of(extents, part);
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
      const std::vector<StrideFit> fits = fits_of(extents_, brought, read);
      if (fits.empty()) continue;
      std::vector<Finding> some;
      Indices left = brought;
      for (const StrideFit& fit : fits) {
        some.push_back(to_string(extents_, fit, universe_, labels_));
        Indices rest;
        std::ranges::set_difference(left, fit.extents, std::back_inserter(rest));
        left = std::move(rest);
      }
      for (Finding& one : sorted(left)) some.push_back(std::move(one));
      if (std::pair(vague(some), some.size()) < std::pair(vague(best), best.size()))
        best = std::move(some), elsewhere = true;
    }
    if (best.size() <= few && !vague(best)) return best;
    const std::vector<FlatCopy> flats = flats_of(extents_, brought);
    if (!flats.empty() && (flats.size() < best.size() || (vague(best) && flats.size() <= many))) {
      best.clear(), elsewhere = false;
      for (const FlatCopy& flat : flats) best.push_back(to_string(flat, labels_));
    }
    return best;
  }

  /// Facts of one sort.
  std::vector<Finding> findings(const Indices& group, std::size_t most = most_boxes) const {
    std::vector<Finding> out;
    if (!moved(extents_[group.front()])) {
      for (const ExtentBox& box : boxes_of(extents_, group, all_, planes_, most))
        out.push_back(to_string(extents_, box, {}, universe(box), labels_));
      return out;
    }
    std::vector<Part> parts = parts_of(extents_, group);
    // Two axes in the other order look like many maps.
    const auto sizes = sizes_of(universe_);
    const auto turned = cost(parts) > 4 ? transposition_of(extents_, group, sizes) : std::nullopt;
    if (turned && fills(*turned, extents_, all_, sizes)) {
      Indices left;
      std::set_difference(group.begin(), group.end(), turned->extents.begin(), turned->extents.end(),
                          std::back_inserter(left));
      std::vector<Part> rest = left.empty() ? std::vector<Part>{} : parts_of(extents_, left);
      if (3 + cost(rest) < cost(parts)) {
        out.push_back(to_string(extents_, *turned, universe_, labels_));
        parts = std::move(rest);
      }
    }
    for (const Part& part : parts) {
      for (const ExtentBox& box : boxes_of(extents_, part.extents, all_, planes_, most_boxes)) {
        // The map on the box alone may be simpler.
        const Maps maps = part.maps.empty() ? Maps{} : maps_of(tables_of(extents_, box.extents));
        out.push_back(to_string(extents_, box, maps, universe(box), labels_));
        out.back().vague = tangled(maps);
      }
    }
    return out;
  }

 private:
  static std::vector<LayoutBox> planes_of(const std::vector<Extent>& extents, const Indices& all, const Labels& labels) {
    const auto found = labels.planes.find(extents[all.front()].memory);
    return found == labels.planes.end() ? std::vector<LayoutBox>{} : found->second;
  }
  /// All that a scope of these facts could name: content where that was meant, else places; of their components.
  Scope universe(const ExtentBox& box) const {
    const bool content = extents_[box.extents.front()].should.kind == ByteSource::Kind::element;
    const std::map<std::int64_t, Scope>& all = content ? content_ : places();
    Scope out;
    for (const std::int64_t component : box.scope.at(ContentAxis::component))
      if (const auto known = all.find(component); known != all.end()) out = joined(std::move(out), known->second);
    out[ContentAxis::component].clear();
    for (const auto& [component, scope] : all) out[ContentAxis::component].push_back(component);
    return out;
  }
  /// By component. A pool may have millions of blocks: made when it is first asked for.
  const std::map<std::int64_t, Scope>& places() const {
    if (places_.empty()) {
      std::map<std::int64_t, std::vector<LayoutBox>> parts;
      for (const LayoutBox& plane : planes_) parts[plane.low[ContentAxis::component]].push_back(plane);
      for (const auto& [component, part] : parts) places_.emplace(component, places_of(part));
    }
    return places_;
  }

  /// Facts of several sorts.
  std::vector<Finding> sorted(const Indices& some) const {
    std::map<Sort, Indices> sorts;
    for (const std::size_t i : some) sorts[sort_of(extents_[i])].push_back(i);
    std::vector<Finding> out;
    for (const auto& [sort, group] : sorts)
      for (Finding& one : findings(group)) out.push_back(std::move(one));
    return out;
  }

  const std::vector<Extent>& extents_;
  const Indices& all_;
  const Labels& labels_;
  const std::vector<LayoutBox> planes_;
  Scope universe_;
  std::map<std::int64_t, Scope> content_;  ///< universe_, by component
  mutable std::map<std::int64_t, Scope> places_;
};

bool has_origin(const Extent& extent) {
  return extent.is.kind == ByteSource::Kind::element || extent.is.kind == ByteSource::Kind::poison;
}

/// Of the values that bound the wrong content on each axis: "layer 1, tokens 0..3, 8" are three.
std::size_t count_extents(const std::vector<Extent>& extents, const Labels& labels) {
  std::size_t out = 0;
  for (const ContentAxis axis : content_axes) {
    std::set<std::int64_t> wrong, all;
    for (const Extent& extent : extents) {
      if (extent.memory >= labels.first_output || labels.sources.contains(extent.memory)) continue;
      for (std::int64_t i = 0; i < (axis == ContentAxis::channel ? std::max<std::int64_t>(1, extent.channels) : 1); ++i) {
        all.insert(extent.should.at[axis] + i);
        if (extent.wrong) wrong.insert(extent.should.at[axis] + i);
      }
    }
    if (wrong == all) continue;
    for (const std::int64_t value : wrong) out += !wrong.contains(value - 1);
  }
  return out;
}

/// One property of pieces that tells the wrong ones from the right ones is said in place of the first `many` findings, but
/// not in place of one that is as simple. Otherwise it is noted: other cases may leave only one.
void report_by_piece(const std::vector<Extent>& extents, const Labels& labels, std::vector<Finding>& findings,
                     std::ptrdiff_t many) {
  if (many == 0 || labels.sources.empty()) return;
  std::vector<PieceRule> rules = piece_rules(extents, labels);
  if (rules.empty()) return;
  const bool simple = many == 1 && !findings.front().vague && count_extents(extents, labels) <= 3;
  const bool one = std::ranges::all_of(rules, [&](const PieceRule& rule) { return rule.of == rules.front().of; });
  if (one && !(simple && rules.front().whole)) {
    Finding finding;
    std::set<int> memories;
    for (const Extent& extent : extents) {
      if (extent.wrong && extent.memory < labels.first_output) finding.bytes += extent.bytes;
      if (extent.memory < labels.first_output && !labels.sources.contains(extent.memory)) memories.insert(extent.memory);
    }
    if (memories.size() == 1) finding.text = labels.memories.at(static_cast<std::size_t>(*memories.begin())) + ": ";
    finding.text += rules.front().message + " (" + rules.front().share + ", " + text::thousands(finding.bytes) +
                    (finding.bytes == 1 ? " byte)" : " bytes)");
    findings.erase(findings.begin(), findings.begin() + many);
    findings.insert(findings.begin(), std::move(finding));
  } else if (simple) {
    std::erase_if(rules, [](const PieceRule& rule) { return !rule.part; });
  }
  for (PieceRule& rule : rules) findings.front().pieces.push_back(std::move(rule.words));
}

}  // namespace

std::vector<Finding> what_happened(const std::vector<Extent>& given, const Labels& labels) {
  const std::vector<Extent> extents = cut_alike(given);
  std::map<int, Indices> of_memory;
  std::map<int, std::map<Sort, Indices>> groups;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    of_memory[extents[i].memory].push_back(i);
    if (extents[i].wrong) groups[extents[i].memory][sort_of(extents[i])].push_back(i);
  }
  std::vector<Finding> out;
  std::ptrdiff_t outputs = 0;
  for (const auto& [number, sorts] : groups) {
    const Memory memory(extents, of_memory[number], labels);
    Indices brought;
    for (const auto& [sort, group] : sorts)
      if (has_origin(extents[group.front()])) brought.insert(brought.end(), group.begin(), group.end());
    std::ranges::sort(brought);
    bool elsewhere = false;
    std::vector<Finding> found = memory.shortest(brought, elsewhere), rest;
    for (const auto& [sort, group] : sorts) {
      const Extent& first = extents[group.front()];
      if (has_origin(first)) continue;
      // Where nothing came follows from where all of it went.
      const std::size_t most = elsewhere && first.is.kind == ByteSource::Kind::nothing ? 1 : most_boxes;
      for (Finding& one : memory.findings(group, most)) rest.push_back(std::move(one));
    }
    for (auto* list : {&found, &rest})
      for (Finding& one : *list) out.push_back(std::move(one));
    if (number < labels.first_output) outputs = static_cast<std::ptrdiff_t>(out.size());
  }
  const auto larger = [](const Finding& a, const Finding& b) { return a.bytes > b.bytes; };
  std::stable_sort(out.begin(), out.begin() + outputs, larger);
  std::stable_sort(out.begin() + outputs, out.end(), larger);
  report_by_piece(extents, labels, out, outputs);
  return out;
}

}  // namespace kvcts::findings
