// Comparison of maps, however their modes are written.
//
// A position is offset + sum over axes of F_axis(coordinate): separable. So two planes are the same map on a product of
// coordinate sets when, axis by axis, their F differ by a constant and the constants sum to zero. Caches that cut their
// planes differently are compared on the common refinement: every axis groups its coordinates by the set of planes that hold
// them, and each product of groups is compared once. Cost: the sum of the extents, never their product.
#include <algorithm>
#include <map>
#include <tuple>

#include "layout/checked.hpp"
#include "layout/digits.hpp"
#include "layout/layout.hpp"

namespace kvcts::layout {
namespace {

using checked::add;
using checked::mul;

constexpr std::int64_t coordinate_limit = std::int64_t{1} << 26;

/// Coordinates of one axis of a plane, ascending, and what each adds to the position.
struct Table {
  std::vector<std::int64_t> coord, bits;
};

Table table(const Plane& plane, Axis axis) {
  Table t{{plane.origin[axis]}, {0}};
  const AxisDigits digits(plane, axis);
  if (!digits.unique(plane)) {
    throw Error("the modes of axis " + std::string(name(axis)) +
                " give one coordinate two places; validate the cache first");
  }
  std::int64_t size = 1;
  for (int i = 0; i < digits.count; ++i) size = mul(size, plane.modes[digits.mode[static_cast<std::size_t>(i)]].extent);
  if (size > coordinate_limit) {
    throw Error("axis " + std::string(name(axis)) + " has " + std::to_string(size) + " coordinates: expected at most " +
                std::to_string(coordinate_limit) + " for a comparison of maps");
  }
  for (int i = 0; i < digits.count; ++i) {  // steps descending: appending the smaller digits keeps the order
    const Mode& m = plane.modes[digits.mode[static_cast<std::size_t>(i)]];
    Table next;
    next.coord.reserve(t.coord.size() * static_cast<std::size_t>(m.extent));
    next.bits.reserve(next.coord.capacity());
    for (std::size_t k = 0; k < t.coord.size(); ++k) {
      for (std::int64_t d = 0; d < m.extent; ++d) {
        next.coord.push_back(add(t.coord[k], mul(d, m.step)));
        next.bits.push_back(add(t.bits[k], mul(d, m.stride)));
      }
    }
    t = std::move(next);
  }
  return t;
}

struct Entry {
  const Plane* plane;
  bool from_b;
  std::array<Table, axis_count> tables;

  std::int64_t bits(std::size_t axis, std::int64_t coord) const {
    const Table& t = tables[axis];
    const auto at = std::lower_bound(t.coord.begin(), t.coord.end(), coord) - t.coord.begin();
    return t.bits[static_cast<std::size_t>(at)];
  }
};

using Members = std::vector<bool>;  ///< which entries hold a coordinate
struct Group {
  Members members;
  std::vector<std::int64_t> coords;
};

std::vector<Group> groups(const std::vector<Entry>& entries, std::size_t axis) {
  std::map<std::int64_t, Members> holders;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    for (std::int64_t c : entries[e].tables[axis].coord) {
      Members& m = holders[c];
      m.resize(entries.size());
      m[e] = true;
    }
  }
  std::map<Members, std::vector<std::int64_t>> by_members;
  for (auto& [coord, members] : holders) by_members[members].push_back(coord);
  std::vector<Group> out;
  for (auto& [members, coords] : by_members) out.push_back({members, std::move(coords)});
  return out;
}

/// Same allocation, same kind of element, same bits for every coordinate of the cell.
bool same_on(const Entry& a, const Entry& b, const std::array<const Group*, axis_count>& cell) {
  if (a.plane->allocation != b.plane->allocation || a.plane->dtype != b.plane->dtype) return false;
  if (bits(a.plane->dtype) == 4 && a.plane->high_nibble_first != b.plane->high_nibble_first) return false;
  std::int64_t base_a = a.plane->offset;
  std::int64_t base_b = b.plane->offset;
  for (std::size_t axis = 0; axis < axis_count; ++axis) {
    const auto& coords = cell[axis]->coords;
    const std::int64_t first_a = a.bits(axis, coords.front());
    const std::int64_t first_b = b.bits(axis, coords.front());
    base_a = add(base_a, first_a);
    base_b = add(base_b, first_b);
    for (std::int64_t c : coords) {
      if (a.bits(axis, c) - first_a != b.bits(axis, c) - first_b) return false;
    }
  }
  return base_a == base_b;
}

std::vector<const Plane*> planes_of(const Cache& cache, Component component) {
  std::vector<const Plane*> out;
  for (const Plane& plane : cache.planes) {
    if (plane.component == component) out.push_back(&plane);
  }
  return out;
}

/// Removes pairs of planes that are equal once normalised: nearly all of them, in nearly all comparisons.
void cancel(std::vector<const Plane*>& left, std::vector<const Plane*>& right) {
  std::multimap<std::string, const Plane*> known;
  for (const Plane* plane : right) known.emplace(to_text(normalised(*plane)), plane);
  std::erase_if(left, [&](const Plane* plane) {
    const auto twin = known.find(to_text(normalised(*plane)));
    if (twin == known.end()) return false;
    known.erase(twin);
    return true;
  });
  right.clear();
  for (const auto& [text, plane] : known) right.push_back(plane);
}

class Comparison {
 public:
  Comparison(const Cache& a, const Cache& b, Component component) {
    auto left = planes_of(a, component);
    auto right = planes_of(b, component);
    cancel(left, right);
    collect(left, false);
    collect(right, true);
    if (entries_.empty()) return;
    for (std::size_t axis = 0; axis < axis_count; ++axis) groups_[axis] = groups(entries_, axis);
  }
  bool same() { return entries_.empty() || descend(0, Members(entries_.size(), true)); }

 private:
  void collect(const std::vector<const Plane*>& planes, bool from_b) {
    for (const Plane* plane : planes) {
      Entry entry{plane, from_b, {}};
      for (Axis axis : all_axes) entry.tables[static_cast<std::size_t>(axis)] = table(*plane, axis);
      entries_.push_back(std::move(entry));
    }
  }

  bool descend(std::size_t axis, const Members& alive) {
    if (axis == axis_count) return compare(alive);
    for (const Group& group : groups_[axis]) {
      Members both = alive;
      bool any = false;
      for (std::size_t e = 0; e < both.size(); ++e) {
        both[e] = both[e] && group.members[e];
        any = any || both[e];
      }
      cell_[axis] = &group;
      if (any && !descend(axis + 1, both)) return false;
    }
    return true;
  }

  /// The planes of both sides that hold the cell, paired one to one.
  bool compare(const Members& alive) {
    std::vector<const Entry*> left;
    std::vector<const Entry*> right;
    for (std::size_t e = 0; e < alive.size(); ++e) {
      if (alive[e]) (entries_[e].from_b ? right : left).push_back(&entries_[e]);
    }
    if (left.size() != right.size()) return false;
    for (const Entry* l : left) {
      const auto twin = std::find_if(right.begin(), right.end(), [&](const Entry* r) { return same_on(*l, *r, cell_); });
      if (twin == right.end()) return false;
      right.erase(twin);
    }
    return true;
  }

  std::vector<Entry> entries_;
  std::array<std::vector<Group>, axis_count> groups_;
  std::array<const Group*, axis_count> cell_{};
};

/// Modes by descending stride, cut so that the modes of both planes have pairwise equal extents where possible.
bool refine(std::vector<Mode>& a, std::vector<Mode>& b) {
  const auto split = [](std::vector<Mode>& list, std::size_t i, std::int64_t inner) {
    Mode outer = list[i];
    outer.extent /= inner;
    outer.stride *= inner;
    outer.step *= inner;
    list[i].extent = inner;
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(i) + 1, outer);
  };
  std::reverse(a.begin(), a.end());
  std::reverse(b.begin(), b.end());
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i].stride != b[i].stride) return false;
    if (a[i].extent > b[i].extent && a[i].extent % b[i].extent == 0) split(a, i, b[i].extent);
    if (b[i].extent > a[i].extent && b[i].extent % a[i].extent == 0) split(b, i, a[i].extent);
    if (a[i].extent != b[i].extent) return false;
  }
  return a.size() == b.size();
}

/// Strides descending; ties by axis, then by step, so the order is unique.
bool by_stride(const Mode& x, const Mode& y) {
  return std::tuple(y.stride, x.axis, y.step, y.extent) < std::tuple(x.stride, y.axis, x.step, x.extent);
}

}  // namespace

Plane normalised(const Plane& plane) {
  Plane out = plane;
  std::erase_if(out.modes, [](const Mode& m) { return m.extent == 1; });
  std::sort(out.modes.begin(), out.modes.end(), by_stride);
  // A mode continues another of its axis when one more digit outside is exactly all digits inside, in steps and in bits.
  for (bool merged = true; merged;) {
    merged = false;
    for (std::size_t i = 0; i < out.modes.size() && !merged; ++i) {
      for (std::size_t j = 0; j < out.modes.size() && !merged; ++j) {
        const Mode& outer = out.modes[i];
        const Mode& inner = out.modes[j];
        if (i == j || outer.axis != inner.axis) continue;
        if (outer.step != mul(inner.step, inner.extent) || outer.stride != mul(inner.stride, inner.extent)) continue;
        out.modes[j].extent = mul(outer.extent, inner.extent);
        out.modes.erase(out.modes.begin() + static_cast<std::ptrdiff_t>(i));
        merged = true;
      }
    }
  }
  std::sort(out.modes.begin(), out.modes.end(), by_stride);
  return out;
}

bool same_map(const Cache& a, const Cache& b) {
  for (Component component : {Component::data, Component::scale, Component::global_scale}) {
    if (!Comparison(a, b, component).same()) return false;
  }
  return true;
}

std::optional<std::string> same_bytes_other_names(const Plane& a, const Plane& b) {
  if (a.component != b.component || a.dtype != b.dtype || a.allocation != b.allocation || a.offset != b.offset) {
    return std::nullopt;
  }
  if (bits(a.dtype) == 4 && a.high_nibble_first != b.high_nibble_first) return std::nullopt;
  auto left = normalised(a).modes;
  auto right = normalised(b).modes;
  if (!refine(left, right)) return std::nullopt;
  // Which names map to which, over all modes.
  std::array<std::array<bool, axis_count>, axis_count> renamed{};
  bool any = false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    renamed[static_cast<std::size_t>(left[i].axis)][static_cast<std::size_t>(right[i].axis)] = true;
    any = any || left[i].axis != right[i].axis;
  }
  if (!any) return std::nullopt;  // equal, or different in origin or steps: not a naming difference
  std::string words;
  for (Axis x : all_axes) {
    for (Axis y : all_axes) {
      const auto i = static_cast<std::size_t>(x);
      const auto j = static_cast<std::size_t>(y);
      if (x == y || !renamed[i][j]) continue;
      const bool mutual = renamed[j][i];
      if (mutual && y < x) continue;
      words += words.empty() ? "" : ", ";
      words += std::string(name(x)) + (mutual ? " <-> " : " -> ") + std::string(name(y));
    }
  }
  return words;
}

}  // namespace kvcts::layout
