// Offsets as a sum of strides, read off exactly: each stride from facts that differ on one axis only, the base by vote.
#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

namespace {

using Indices = std::vector<std::size_t>;
using ByAxis = std::map<ContentAxis, std::int64_t>;

constexpr std::array stride_axes{ContentAxis::layer, ContentAxis::kv,   ContentAxis::block,
                                 ContentAxis::slot,  ContentAxis::head, ContentAxis::channel};
constexpr std::size_t most_fits = 4;

/// A number for a coordinate. Sums of them are keys: two that collide cost a finding its exactness, never its truth, as
/// every place is computed afterwards.
std::uint64_t hash_of(ContentAxis axis, std::int64_t value) {
  std::uint64_t out = (static_cast<std::uint64_t>(value) + 1) * 0x9fb21c651e98df25ull + static_cast<std::uint64_t>(axis);
  out = (out ^ (out >> 29)) * 0xbf58476d1ce4e5b9ull;
  return out ^ (out >> 32);
}
std::uint64_t key_of(int region, const Coordinates& at) {
  std::uint64_t out = hash_of(ContentAxis::component, region) * 3;
  for (int a = 0; a < axis_count; ++a) out += hash_of(static_cast<ContentAxis>(a), at.at[static_cast<std::size_t>(a)]);
  return out;
}

/// An offset, and the coordinates that it is a function of.
struct Point {
  std::size_t extent{0};
  int region{0};
  Coordinates at;
  std::int64_t offset{0}, bytes{0}, channels{1};
  std::uint64_t key{0};
  /// Of its coordinates but some.
  template <class Axes>
  std::uint64_t without(const Axes& axes) const {
    std::uint64_t out = key;
    for (const ContentAxis axis : axes) out -= hash_of(axis, at[axis]);
    return out;
  }
};

/// What most of the weight is for; nothing: less than the share.
class Votes {
 public:
  void add(std::int64_t value, std::int64_t weight) { votes_[value] += weight, all_ += weight; }
  std::optional<std::int64_t> won(double share) const {
    const auto best = std::ranges::max_element(votes_, {}, [](const auto& vote) { return vote.second; });
    if (best == votes_.end() || static_cast<double>(best->second) < share * static_cast<double>(all_)) return std::nullopt;
    return best->first;
  }

 private:
  std::unordered_map<std::int64_t, std::int64_t> votes_;
  std::int64_t all_{0};
};

std::optional<std::int64_t> stride_along(std::span<const Point> points, ContentAxis axis, double share) {
  constexpr std::size_t most = 1 << 16;  // more say the same; what they say is held against all
  points = points.first(std::min(most, points.size()));
  std::unordered_map<std::uint64_t, std::size_t> last;
  last.reserve(points.size());
  Votes vote;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto [at, added] = last.try_emplace(points[i].without(std::array{axis}), i);
    if (added) continue;
    const Point& before = points[std::exchange(at->second, i)];
    const std::int64_t steps = points[i].at[axis] - before.at[axis], bytes = points[i].offset - before.offset;
    if (steps == 0) continue;
    // Not a whole number: no stride, but a vote against the others.
    vote.add(bytes % steps == 0 ? bytes / steps : INT64_MIN, points[i].bytes);
  }
  // Along a run channels are next to one another.
  if (axis == ContentAxis::channel)
    for (const Point& point : points)
      if (point.channels > 1 && point.bytes % point.channels == 0) vote.add(point.bytes / point.channels, point.bytes);
  const auto won = vote.won(share);
  return won == INT64_MIN ? std::nullopt : won;
}

struct Solved {
  ByAxis strides;
  std::unordered_map<std::uint64_t, std::int64_t> bases;  ///< by what the strides leave over
  std::vector<ContentAxis> axes() const {
    std::vector<ContentAxis> out;
    for (const auto& [axis, stride] : strides) out.push_back(axis);
    return out;
  }
  std::int64_t rest(const Point& point) const {
    std::int64_t out = point.offset;
    for (const auto& [axis, stride] : strides) out -= stride * point.at[axis];
    return out;
  }
};

Solved solve(const std::vector<Point>& points, const std::vector<ContentAxis>& along, double share) {
  Solved out;
  for (const ContentAxis axis : along)
    if (const auto stride = stride_along(points, axis, share)) out.strides.emplace(axis, *stride);
  const std::vector<ContentAxis> axes = out.axes();
  std::unordered_map<std::uint64_t, Votes> votes;
  for (const Point& point : points) votes[point.without(axes)].add(out.rest(point), point.bytes);
  for (const auto& [key, vote] : votes)
    if (const auto base = vote.won(0.5)) out.bases.emplace(key, *base);
  return out;
}

/// Where tokens lie: block and slot by memory, request and token.
class Places {
 public:
  explicit Places(const std::vector<Extent>& extents) {
    for (const Extent& extent : extents) {
      if (extent.region >= 0) memory_of_[extent.region] = extent.memory;
      if (extent.should.kind != ByteSource::Kind::element) continue;
      const Coordinates& at = extent.should.at;
      table_.try_emplace(key(extent.memory, at), std::pair(at[ContentAxis::block], at[ContentAxis::slot]));
    }
  }
  /// Puts the place of its token in a region; false: it has none.
  bool place(int region, Coordinates& at) const {
    const auto memory = memory_of_.find(region);
    if (memory == memory_of_.end()) return false;
    const auto found = table_.find(key(memory->second, at));
    if (found == table_.end()) return false;
    std::tie(at[ContentAxis::block], at[ContentAxis::slot]) = found->second;
    return true;
  }
  int memory_of(int region) const {
    const auto found = memory_of_.find(region);
    return found == memory_of_.end() ? -1 : found->second;
  }

 private:
  static std::uint64_t key(int memory, const Coordinates& at) {
    Coordinates token;
    token[ContentAxis::request] = at[ContentAxis::request], token[ContentAxis::token] = at[ContentAxis::token];
    return key_of(memory, token);
  }
  std::unordered_map<int, int> memory_of_;
  std::unordered_map<std::uint64_t, std::pair<std::int64_t, std::int64_t>> table_;
};

/// Where it lies says the rest, if it lies in a block.
void forget_token(Point& point) {
  if (point.at[ContentAxis::block] == none) return;
  point.at[ContentAxis::request] = point.at[ContentAxis::token] = none;
  point.key = key_of(point.region, point.at);
}

class Fitter {
 public:
  Fitter(const std::vector<Extent>& extents, bool read) : extents_(extents), read_(read), places_(extents) {}

  /// Where content lies as a function of what it is; or, `read`, where it was taken from as a function of what it should be.
  std::vector<Point> points(const Indices& some) const {
    std::vector<Point> out;
    for (const std::size_t i : some) {
      const Extent& extent = extents_[i];
      const ByteSource& source = read_ ? extent.should : extent.is;
      const std::int64_t offset = read_ ? extent.from_offset : extent.offset;
      Point point{i, read_ ? extent.from : extent.region, source.at, offset - source.byte, extent.bytes, extent.channels, 0};
      // What lies in the same memory was not read there.
      if (point.region < 0 || (read_ && places_.memory_of(point.region) == extent.memory) ||
          source.kind != ByteSource::Kind::element)
        continue;
      if (!places_.place(point.region, point.at) && !read_) continue;
      forget_token(point);
      out.push_back(std::move(point));
    }
    return out;
  }

  std::optional<StrideFit> fit(const std::vector<Point>& points) const {
    std::optional<StrideFit> best;
    // Content that lies in several places votes for several strides; four values in two groups are no stride, and yet two
    // of three.
    for (const double share : {0.5, 0.75}) {
      auto one = fit(points, share);
      if (one && (!best || one->bytes > best->bytes)) best = std::move(one);
      if (best && best->extents.size() == points.size()) break;
    }
    return best;
  }

 private:
  std::optional<StrideFit> fit(const std::vector<Point>& points, double share) const {
    const Solved found = solve(points, {stride_axes.begin(), stride_axes.end()}, share);
    if (found.strides.empty()) return std::nullopt;
    const std::vector<ContentAxis> axes = found.axes();
    StrideFit out;
    out.read = read_;
    out.strides = found.strides;
    std::int64_t all = 0;
    std::map<int, std::int64_t> from;
    std::set<std::pair<std::int64_t, std::int64_t>> tensors;
    for (const Point& point : points) {
      all += point.bytes;
      const auto base = found.bases.find(point.without(axes));
      if (base == found.bases.end() || base->second != found.rest(point)) continue;
      out.extents.push_back(point.extent), out.bytes += point.bytes;
      from[point.region] += point.bytes;
      tensors.insert(tensor_of(point.at));
    }
    // What a fit says must be less than what it covers.
    if (out.bytes * 2 < all || out.extents.size() < 3 * (found.bases.size() + found.strides.size())) return std::nullopt;
    out.region = std::ranges::max_element(from, {}, [](const auto& one) { return one.second; })->first;
    out.several = from.size() > 1;
    const Solved declared = solve(declared_of(places_.memory_of(out.region), tensors), axes, 0.75);
    out.declared = declared.strides;
    const auto changed = [&](const auto& stride) {
      const auto known = out.declared.find(stride.first);
      return known != out.declared.end() && known->second != stride.second;
    };
    if (out.strides != out.declared) {
      if (std::ranges::none_of(out.strides, changed)) return std::nullopt;
    } else {
      for (const auto& [key, base] : found.bases) {
        const auto known = declared.bases.find(key);
        if (known == declared.bases.end() || base == known->second) return std::nullopt;
        if (out.shift != 0 && out.shift != base - known->second) return std::nullopt;
        out.shift = base - known->second;
      }
    }
    return out;
  }

  static std::pair<std::int64_t, std::int64_t> tensor_of(const Coordinates& at) {
    return {at[ContentAxis::component], at[ContentAxis::kv]};
  }

  std::vector<Point> declared_of(int memory, const std::set<std::pair<std::int64_t, std::int64_t>>& tensors) const {
    std::vector<Point> out;
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      const Extent& extent = extents_[i];
      if (extent.memory != memory || extent.should.kind != ByteSource::Kind::element ||
          !tensors.contains(tensor_of(extent.should.at)))
        continue;
      out.push_back(
          {i, extent.region, extent.should.at, extent.offset - extent.should.byte, extent.bytes, extent.channels, 0});
      forget_token(out.back());
    }
    return out;
  }

  const std::vector<Extent>& extents_;
  bool read_;
  Places places_;
};

std::int64_t bytes_of(const std::vector<StrideFit>& fits) {
  std::int64_t out = 0;
  for (const StrideFit& fit : fits) out += fit.bytes;
  return out;
}

/// One for all, or by the values of an axis.
std::vector<StrideFit> fits_of(const Fitter& fitter, const std::vector<Point>& points) {
  std::vector<StrideFit> best;
  if (auto whole = fitter.fit(points)) best.push_back(std::move(*whole));
  std::int64_t all = 0;
  for (const Point& point : points) all += point.bytes;
  for (const ContentAxis axis : {ContentAxis::kv, ContentAxis::layer, ContentAxis::head}) {
    if (bytes_of(best) == all) break;
    std::map<std::int64_t, std::vector<Point>> parts;
    for (const Point& point : points) parts[point.at[axis]].push_back(point);
    if (parts.size() < 2 || parts.size() > most_fits) continue;
    std::vector<StrideFit> fits;
    for (const auto& [value, part] : parts)
      if (auto fit = fitter.fit(part)) fits.push_back(std::move(*fit));
    if (bytes_of(fits) > bytes_of(best)) best = std::move(fits);
  }
  for (StrideFit& fit : best) std::ranges::sort(fit.extents);
  return best;
}

}  // namespace

std::vector<StrideFit> fits_of(const std::vector<Extent>& extents, const Indices& some, bool read) {
  const Fitter fitter(extents, read);
  // Data and scales have strides of their own.
  std::map<std::int64_t, std::vector<Point>> components;
  for (Point& point : fitter.points(some)) components[point.at[ContentAxis::component]].push_back(std::move(point));
  std::vector<StrideFit> out;
  for (const auto& [component, points] : components)
    for (StrideFit& fit : fits_of(fitter, points)) out.push_back(std::move(fit));
  return out;
}

}  // namespace kvcts::findings
