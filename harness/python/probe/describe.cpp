#include "python/probe/describe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "diagnose/claims.hpp"
#include "scene/faults/variants.hpp"

namespace kvcts::probe {

using layout::Axis;

namespace {

std::int64_t extent(const layout::Reading& reading, Axis axis) { return reading.extents[static_cast<std::size_t>(axis)]; }
bool named(const layout::Reading& reading, char letter) { return reading.letters.find(letter) != std::string::npos; }

// Named axes without a number.
bool is_open(const layout::Reading& reading) {
  return std::any_of(layout::all_axes.begin(), layout::all_axes.end(),
                     [&](Axis axis) { return named(reading, layout::letter(axis)) && extent(reading, axis) == 0; });
}

layout::Geometry geometry_of(const layout::Reading& reading, std::int64_t kv) {
  layout::Geometry out;
  out.layers = std::max<std::int64_t>(1, extent(reading, Axis::layer));
  out.blocks = extent(reading, Axis::block);
  out.block_size = extent(reading, Axis::slot);
  out.heads = std::max<std::int64_t>(1, extent(reading, Axis::head));
  out.head_dim = extent(reading, Axis::channel);
  out.kv = kv;
  return out;
}

bool shows(const layout::TensorView& view, const Tensor& tensor) {
  if (view.dims.size() != tensor.shape.size()) return false;
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    if (view.dims[d].extent != tensor.shape[d]) return false;
    if (tensor.shape[d] > 1 && view.dims[d].stride != tensor.strides[d]) return false;
  }
  return std::max(8, layout::bits(view.dtype)) == tensor.itemsize * 8;
}

std::string order_of(const layout::Cache& cache) {
  for (const layout::Plane& plane : cache.planes)
    if (plane.component == layout::Component::data) return scenario::order_text(plane);
  return "";
}

// Schemes that match the tensor's codes, those without scales first.
std::vector<layout::Scheme> schemes_of(const Tensor& tensor, const catalogue::Catalogue& catalogue) {
  std::vector<layout::Scheme> out;
  for (const auto& [id, entry] : catalogue.dtypes()) {
    const layout::Scheme scheme = catalogue::scheme_of(entry);
    const bool raw = tensor.dtype == "uint8" && layout::bits(scheme.data) <= 8;
    if (layout::name(scheme.data) == tensor.dtype || raw) out.push_back(scheme);
  }
  std::stable_sort(out.begin(), out.end(), [&](const layout::Scheme& a, const layout::Scheme& b) {
    const auto rank = [&](const layout::Scheme& s) {
      return 2 * (s.scale.has_value() || s.global_scale.has_value()) + (layout::name(s.data) != tensor.dtype);
    };
    return rank(a) < rank(b);
  });
  return out;
}

bool demands_met(const catalogue::LayoutEntry& entry, const layout::Geometry& g) {
  const std::pair<const char*, std::int64_t> values[] = {
      {"layers", g.layers}, {"blocks", g.blocks},     {"block_size", g.block_size},
      {"heads", g.heads},   {"head_dim", g.head_dim}, {"v_head_dim", g.v_head_dim},
      {"kv", g.kv}};
  for (const auto& [key, value] : values) {
    if (const auto fixed = entry.fixed.find(key); fixed != entry.fixed.end() && fixed->second != value) return false;
  }
  return true;
}

// Geometries to try: from a reading, and from the facts if they are complete (split axes have no reading).
struct Candidate {
  layout::Geometry geometry;
  std::vector<std::size_t> readings;
};

std::vector<Candidate> candidates_of(const std::vector<layout::Reading>& readings, const layout::Facts& facts,
                                     std::size_t offset) {
  std::vector<Candidate> out;
  const auto add = [&](const layout::Geometry& geometry, const std::vector<std::size_t>& from) {
    auto same = std::find_if(out.begin(), out.end(), [&](const Candidate& c) { return c.geometry == geometry; });
    if (same == out.end()) same = out.insert(out.end(), {geometry, {}});
    same->readings.insert(same->readings.end(), from.begin(), from.end());
  };
  for (std::size_t r = 0; r < readings.size(); ++r) {
    if (is_open(readings[r])) continue;
    for (const std::int64_t kv : {std::int64_t{2}, std::int64_t{1}}) {
      if (kv == 1 && named(readings[r], 'K')) continue;
      layout::Geometry geometry = geometry_of(readings[r], kv);
      add(geometry, {offset + r});
      if (named(readings[r], 'L') || !facts.layers) continue;
      geometry.layers = *facts.layers;  // one layer of a larger pool
      add(geometry, {offset + r});
    }
  }
  if (facts.blocks && facts.block_size && facts.heads && facts.head_dim) {
    for (const std::int64_t kv : {std::int64_t{2}, std::int64_t{1}}) {
      layout::Geometry geometry{.layers = facts.layers.value_or(1),
                                .blocks = *facts.blocks,
                                .block_size = *facts.block_size,
                                .heads = *facts.heads,
                                .head_dim = *facts.head_dim};
      geometry.kv = kv;
      add(geometry, {});
    }
  }
  return out;
}

/// Adds a layout to the fit that has the same map, or a fit of its own.
void add_fit(const std::string& id, const std::string& dtype, const layout::Geometry& geometry, layout::Cache cache,
             std::vector<layout::Cache>& caches, std::vector<Fit>& fits) {
  std::string axes;
  for (const layout::Dim& dim : cache.tensors.front().dims) axes += (axes.empty() ? "" : " ") + dim.axes;
  for (std::size_t f = 0; f < fits.size(); ++f) {
    Fit& fit = fits[f];
    if (fit.geometry != geometry || fit.dtype != dtype || fit.axes != axes || !layout::same_map(caches[f], cache)) continue;
    if (std::find(fit.layouts.begin(), fit.layouts.end(), id) == fit.layouts.end()) fit.layouts.push_back(id);
    return;
  }
  fits.push_back({axes, order_of(cache), geometry, dtype, {id}});
  caches.push_back(std::move(cache));
}

/// What no conversion can change.
std::vector<std::string> differences(const Subject& producer, const Subject& consumer) {
  const layout::Geometry &p = producer.geometry, &c = consumer.geometry;
  const auto wide = [](const layout::Geometry& g) { return g.v_head_dim ? g.v_head_dim : g.head_dim; };
  std::vector<std::string> differ;
  const auto must_agree = [&](const char* what, std::int64_t a, std::int64_t b) {
    if (a != b) differ.push_back(fmt::format("{} is {} in the producer and {} in the consumer", what, a, b));
  };
  must_agree("layers", p.layers, c.layers), must_agree("first_layer", p.first_layer, c.first_layer);
  must_agree("heads", p.heads, c.heads), must_agree("first_head", p.first_head, c.first_head);
  must_agree("head_dim", p.head_dim, c.head_dim), must_agree("v_head_dim", wide(p), wide(c)), must_agree("kv", p.kv, c.kv);
  if (producer.scheme != consumer.scheme)
    differ.push_back(
        fmt::format("dtype is {} in the producer and {} in the consumer", producer.scheme.name, consumer.scheme.name));
  return differ;
}

std::vector<std::pair<std::int64_t, std::int64_t>> shapes(const layout::Cache& cache) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (const auto& view : cache.tensors) {
    for (const auto& dim : view.dims) dims.emplace_back(dim.extent, dim.extent > 1 ? dim.stride : 0);
    dims.emplace_back(-1, -1);
  }
  return dims;
}

}  // namespace

Description describe(const Tensor& tensor, const layout::Facts& facts, const catalogue::Catalogue& catalogue) {
  if (tensor.shape.size() > 8)
    throw layout::Error(fmt::format("expected at most 8 dimensions, found {}", tensor.shape.size()));
  const auto schemes = schemes_of(tensor, catalogue);
  if (schemes.empty())
    throw layout::Error(
        fmt::format("no cache dtype has elements of {}; pass a view as bf16, fp16, fp8 or uint8", tensor.dtype));
  Description out;
  std::vector<std::int64_t> strides;
  for (const std::int64_t bytes : tensor.strides) strides.push_back(bytes / tensor.itemsize);
  std::vector<layout::Reading> readings = layout::readings(tensor.shape, facts, strides);
  for (const layout::Reading& reading : readings)
    if (is_open(reading)) out.open.push_back(reading);
  const std::vector<Candidate> whole = candidates_of(readings, facts, 0);
  std::vector<Candidate> packed;
  if (tensor.itemsize == 1 && !tensor.shape.empty()) {  // two 4-bit codes per byte
    std::vector<std::int64_t> shape = tensor.shape;
    shape.back() *= 2;
    const auto more = layout::readings(shape, facts, strides);
    packed = candidates_of(more, facts, readings.size());
    readings.insert(readings.end(), more.begin(), more.end());
  }
  std::vector<layout::Cache> caches;  // one per fit
  std::set<std::size_t> fitting;
  const auto attempt = [&](const std::string& id, const catalogue::LayoutEntry& entry, const layout::Scheme& scheme,
                           const Candidate& candidate) {
    if (!demands_met(entry, candidate.geometry)) return false;
    layout::Cache cache;
    try {
      cache = layout::instantiate(entry.text, candidate.geometry, scheme, entry.tensors);
    } catch (const layout::Error&) {
      return false;
    }
    if (cache.tensors.empty() || !shows(cache.tensors.front(), tensor)) return false;
    fitting.insert(candidate.readings.begin(), candidate.readings.end());
    add_fit(id, scheme.name, candidate.geometry, std::move(cache), caches, out.fits);
    return true;
  };
  for (const auto& [id, entry] : catalogue.layouts()) {
    for (const layout::Scheme& scheme : schemes) {
      if (!entry.dtypes.empty() && std::find(entry.dtypes.begin(), entry.dtypes.end(), scheme.name) == entry.dtypes.end())
        continue;
      bool any = false;
      for (const Candidate& candidate : layout::bits(scheme.data) == 4 ? packed : whole)
        any = attempt(id, entry, scheme, candidate) || any;
      if (any) break;
    }
  }
  std::vector<layout::Reading> candidates;
  for (const std::size_t r : fitting) candidates.push_back(readings[r]);
  if (out.fits.empty()) candidates = readings;
  out.ambiguous = out.fits.size() > 1 || (out.fits.empty() && readings.size() > 1);
  if (!out.ambiguous) return out;
  out.settled_by = layout::settled_by(candidates);
  // One reading, yet several layouts: only their names help.
  if (out.settled_by.empty()) out.settled_by = "the layout's name";
  return out;
}

Compatibility compare(const Subject& producer, const Subject& consumer, Moves moves) {
  Compatibility out;
  const layout::Geometry &p = producer.geometry, &c = consumer.geometry;
  const std::vector<std::string> differ = differences(producer, consumer);
  if (!differ.empty()) {
    out.code = 11;
    out.text = fmt::format("refused: {}", fmt::join(differ, "; "));
    return out;
  }
  // Pools of different length are compared over the blocks that both have.
  layout::Geometry common = p;
  common.blocks = std::min(p.blocks, c.blocks);
  layout::Geometry theirs = c;
  theirs.blocks = common.blocks;
  const layout::Cache a = layout::instantiate(producer.text, common, producer.scheme),
                      b = layout::instantiate(consumer.text, theirs, consumer.scheme);
  const bool same = p.block_size == c.block_size && layout::same_map(a, b);
  out.distinguished = same || shapes(producer.cache) != shapes(consumer.cache);
  if (same) {
    out.text = "compatible: the same coordinates at the same bytes";
    return out;
  }
  const std::string from = order_of(a), to = order_of(b);
  std::string how = from == to ? fmt::format("the order {} is the same, and strides or planes are not", from)
                               : fmt::format("the producer has {} in memory, the consumer {}", from, to);
  if (p.block_size != c.block_size)
    how = fmt::format("blocks of {} tokens against blocks of {}{}{}", p.block_size, c.block_size, from == to ? "" : "; ",
                      from == to ? "" : how);
  if (!out.distinguished) how += "; shapes and strides are the same, so a connector that checks them cannot tell";
  if (moves == Moves::coordinates) {
    out.code = 10;
    out.text = "compatible with conversion: " + how;
    return out;
  }
  std::vector<std::int64_t> left, right;
  for (const auto& x : a.allocations) left.push_back(x.bytes);
  for (const auto& x : b.allocations) right.push_back(x.bytes);
  if (p.block_size != c.block_size || left != right) {
    out.code = 11;
    out.text = "refused: blocks cannot be moved as they are: " + how;
    return out;
  }
  out.code = 12;
  std::string is = from, taken_for = to;
  std::erase(is, ' '), std::erase(taken_for, ' ');
  out.fault_class = diagnose::class_of_order(is, taken_for);
  std::string renamed;
  if (!a.planes.empty() && !b.planes.empty())
    renamed = layout::same_bytes_other_names(a.planes.front(), b.planes.front()).value_or("");
  out.text = "silently wrong: blocks moved as they are fit and mean something else: " + how +
             (renamed.empty() ? "" : " (" + renamed + ")");
  return out;
}

}  // namespace kvcts::probe
