// A set of facts as products of sets: cut along the axis whose values have the fewest shapes.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

namespace {

constexpr std::array cut_axes{ContentAxis::component, ContentAxis::request, ContentAxis::layer,
                              ContentAxis::kv,        ContentAxis::block,   ContentAxis::head,
                              ContentAxis::token,     ContentAxis::slot,    ContentAxis::channel};
constexpr int deepest = 6;

using Indices = std::vector<std::size_t>;

class Cutter {
 public:
  Cutter(const std::vector<Extent>& extents, const std::vector<LayoutBox>& planes, std::size_t most)
      : extents_(extents), planes_(planes), most_(most) {}

  std::vector<ExtentBox> cut(const Indices& chosen, const Indices& all, int depth) const {
    ExtentBox whole = box(chosen, all);
    if (whole.others == 0 || depth == deepest) return {std::move(whole)};
    std::vector<Cut> best;
    for (const ContentAxis axis : cut_axes) {
      std::vector<Cut> cuts;
      for (Indices& group : alike(chosen, axis)) {
        Indices near = beside(group, all, axis);
        ExtentBox one = box(group, near);
        cuts.push_back({std::move(near), std::move(one)});
      }
      if (cuts.size() > 1 && (best.empty() || cost(cuts) < cost(best))) best = std::move(cuts);
    }
    if (best.empty() || cost(best).first >= whole.others) return {std::move(whole)};
    std::vector<ExtentBox> out;
    for (const Cut& one : best) {
      for (ExtentBox& part : cut(one.box.extents, one.all, depth + 1)) out.push_back(std::move(part));
      if (out.size() > most_) return {std::move(whole)};
    }
    return out;
  }

 private:
  struct Cut {
    Indices all;  ///< that have these values
    ExtentBox box;
  };
  static std::pair<std::int64_t, std::size_t> cost(const std::vector<Cut>& cuts) {
    std::int64_t others = 0;
    for (const Cut& cut : cuts) others += cut.box.others;
    return {others, cuts.size()};
  }

  /// Those of `all` that share the group's values of an axis.
  Indices beside(const Indices& group, const Indices& all, ContentAxis axis) const {
    if (axis == ContentAxis::channel) return all;  // a row that begins before them may reach into them
    std::unordered_set<std::int64_t> values;
    for (const std::size_t i : group) values.insert(extents_[i].should.at[axis]);
    Indices out;
    for (const std::size_t i : all)
      if (values.contains(extents_[i].should.at[axis])) out.push_back(i);
    return out;
  }

  ExtentBox box(const Indices& chosen, const Indices& all) const {
    ExtentBox out;
    out.extents = chosen;
    std::map<ContentAxis, std::unordered_set<std::int64_t>> sets;
    for (const std::size_t i : chosen) {
      out.bytes += extents_[i].bytes;
      for (const ContentAxis axis : cut_axes) sets[axis].insert(extents_[i].should.at[axis]);
    }
    for (const auto& [axis, values] : sets) out.scope[axis].assign(values.begin(), values.end());
    out.scope[ContentAxis::channel] = channels_of(extents_, chosen);
    for (auto& [axis, values] : out.scope) std::ranges::sort(values);
    const ByteSource& should = extents_[chosen.front()].should;
    std::int64_t inside = 0;
    if (should.kind == ByteSource::Kind::element) {
      for (const std::size_t i : all) {
        const bool in = std::ranges::all_of(cut_axes, [&](ContentAxis axis) {
          return axis == ContentAxis::slot || axis == ContentAxis::channel ||  // a token says its slot
                 sets[axis].contains(extents_[i].should.at[axis]);
        });
        if (in) inside += bytes_of(extents_[i], out.scope.at(ContentAxis::channel));
      }
    } else if (should.at == Coordinates{}) {
      inside = span(chosen);
    } else {
      // Where nothing was meant only what is wrong is a fact.
      inside = std::max(out.bytes, bytes_in(planes_, out.scope));
    }
    out.others = inside - out.bytes;
    return out;
  }

  /// Bytes of some channels.
  static std::int64_t bytes_of(const Extent& extent, const std::vector<std::int64_t>& channels) {
    const std::int64_t first = extent.should.at[ContentAxis::channel], bits = extent.bits;
    if (bits == 0 || first == none) return std::ranges::binary_search(channels, first) ? extent.bytes : 0;
    const std::int64_t begin = first * bits + 8 * extent.should.byte, end = begin + 8 * extent.bytes;
    std::int64_t out = 0;
    for (auto c = std::ranges::lower_bound(channels, first); c != channels.end() && *c * bits < end; ++c)
      out += std::min(end, (*c + 1) * bits) - std::max(begin, *c * bits);
    return out / 8;
  }

  /// Bytes from the first to the last.
  std::int64_t span(const Indices& chosen) const {
    std::int64_t begin = INT64_MAX, end = INT64_MIN;
    for (const std::size_t i : chosen) {
      begin = std::min(begin, extents_[i].offset);
      end = std::max(end, extents_[i].offset + extents_[i].bytes);
    }
    return end - begin;
  }

  /// The chosen facts by value of an axis; values whose facts have the same sets on all other axes together.
  std::vector<Indices> alike(const Indices& chosen, ContentAxis axis) const {
    std::map<std::int64_t, Indices> by_value;
    for (const std::size_t i : chosen) by_value[extents_[i].should.at[axis]].push_back(i);
    if (by_value.size() < 2) return {};
    std::map<std::vector<std::vector<std::int64_t>>, Indices> by_shape;
    for (const auto& [value, some] : by_value) {
      std::vector<std::vector<std::int64_t>> shape;
      for (const ContentAxis other : cut_axes) {
        // A block holds other tokens than the next: they follow from one another.
        if (other == axis || follows(axis, other)) continue;
        std::set<std::int64_t> values;
        for (const std::size_t i : some) values.insert(extents_[i].should.at[other]);
        shape.emplace_back(values.begin(), values.end());
      }
      Indices& group = by_shape[shape];
      group.insert(group.end(), some.begin(), some.end());
      if (by_shape.size() > most_) return {};
    }
    std::vector<Indices> out;
    for (auto& [shape, group] : by_shape) {
      std::ranges::sort(group);
      out.push_back(std::move(group));
    }
    return out;
  }

  static bool follows(ContentAxis axis, ContentAxis other) {
    return (axis == ContentAxis::block && other == ContentAxis::token) ||
           (axis == ContentAxis::token && (other == ContentAxis::block || other == ContentAxis::slot)) ||
           (axis == ContentAxis::slot && other == ContentAxis::token);
  }

  const std::vector<Extent>& extents_;
  const std::vector<LayoutBox>& planes_;
  std::size_t most_;
};

}  // namespace

std::vector<ExtentBox> boxes_of(const std::vector<Extent>& extents, const Indices& chosen, const Indices& all,
                                const std::vector<LayoutBox>& planes, std::size_t most) {
  return Cutter(extents, planes, most).cut(chosen, all, 0);
}

std::vector<std::int64_t> channels_of(const std::vector<Extent>& extents, const Indices& some) {
  std::set<std::int64_t> out;
  for (const std::size_t i : some) {
    const std::int64_t first = extents[i].should.at[ContentAxis::channel];
    for (std::int64_t c = first; c < first + std::max<std::int64_t>(1, extents[i].channels); ++c) out.insert(c);
  }
  return {out.begin(), out.end()};
}

std::int64_t bytes_in(const std::vector<LayoutBox>& planes, const Scope& scope) {
  std::int64_t bits = 0;
  for (const LayoutBox& plane : planes) {
    std::int64_t product = plane.bits;
    for (const auto& [axis, values] : scope)
      if (axis != ContentAxis::request && axis != ContentAxis::token)
        product *= std::ranges::count_if(
            values, [&, a = axis](std::int64_t value) { return value >= plane.low[a] && value < plane.high[a]; });
    bits += product;
  }
  return bits / 8;
}

}  // namespace kvcts::findings
