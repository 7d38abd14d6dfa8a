// instantiate(): a template and a geometry become a cache.
//
// Sizes are computed from the inside out: a leaf is one code, a mode multiplies its content by its extent and strides over
// it, braces concatenate their parts. All planes of a part carry offsets relative to it until the allocation is complete.
#include "layout/template.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "layout/checked.hpp"
#include "layout/template_tree.hpp"
#include "layout/tensors.hpp"

namespace kvcts::layout {
namespace {

using checked::add;
using checked::mul;
using checked::sub;

constexpr std::size_t allocation_limit = 100'000;

struct Built {
  std::int64_t bits{0};
  std::vector<Plane> planes;
};

/// Coordinates that the outer modes fixed. One copy per part; small.
struct Path {
  std::array<bool, axis_count> placed{};
  std::array<std::optional<std::int64_t>, axis_count> at;  ///< fixed coordinate, relative to the rank
  std::array<std::int64_t, axis_count> start{};            ///< start of a range
  std::optional<Component> component;
};

std::string number(std::int64_t n) { return std::to_string(n); }

class Builder {
 public:
  Builder(const Geometry& geometry, const Scheme& scheme) : g_(geometry), s_(scheme) {
    const auto positive = [](std::int64_t n, const char* what) {
      if (n < 1) throw Error(std::string("geometry: ") + what + " is " + number(n) + ", expected 1 or more");
    };
    positive(g_.layers, "layers");
    positive(g_.blocks, "blocks");
    positive(g_.block_size, "block_size");
    positive(g_.heads, "heads");
    positive(g_.head_dim, "head_dim");
    if (g_.v_head_dim == 0) g_.v_head_dim = g_.head_dim;
    positive(g_.v_head_dim, "v_head_dim");
    if (g_.kv != 1 && g_.kv != 2)
      throw Error("geometry: kv is " + number(g_.kv) + ", expected 1 (one latent) or 2 (K and V)");
    if (g_.first_layer < 0 || g_.first_head < 0) throw Error("geometry: first_layer and first_head must not be negative");
  }

  /// One allocation per value of the list axes.
  void region(const TemplateRegion& region, Cache& cache) {
    std::vector<std::int64_t> index(region.list.size(), 0);
    for (bool more = true; more;) {
      if (cache.allocations.size() >= allocation_limit) {
        throw Error("the template gives more than " + std::to_string(allocation_limit) + " allocations; use fewer layers");
      }
      Path path;
      for (std::size_t i = 0; i < index.size(); ++i) {
        path.placed[static_cast<std::size_t>(region.list[i])] = true;
        path.at[static_cast<std::size_t>(region.list[i])] = index[i];
      }
      Built built = build(region.part, path);
      if (built.bits % 8 != 0)
        throw Error("an allocation of " + number(built.bits) + " bits does not fill whole bytes; use an even extent");
      const int allocation = static_cast<int>(cache.allocations.size());
      cache.allocations.push_back({allocation_name(region, index, built.planes), built.bits / 8});
      for (Plane& plane : built.planes) {
        plane.allocation = allocation;
        cache.planes.push_back(std::move(plane));
      }
      more = false;
      for (std::size_t i = index.size(); i-- > 0;) {
        if (++index[i] < list_extent(region.list[i])) {
          more = true;
          break;
        }
        index[i] = 0;
      }
    }
  }

 private:
  std::int64_t list_extent(Axis axis) const {
    if (axis == Axis::channel) throw Error("the template makes a list over channels (C x); place C inside the allocation");
    return extent(axis, Component::data, {});
  }

  std::int64_t width(const Path& path) const {
    const auto kv = path.at[static_cast<std::size_t>(Axis::kv)];
    if (kv) return *kv == 0 ? g_.head_dim : g_.v_head_dim;
    if (g_.kv == 1 || g_.head_dim == g_.v_head_dim) return g_.head_dim;
    throw Error(
        "head_dim is " + number(g_.head_dim) + " and v_head_dim " + number(g_.v_head_dim) +
        ", but the layout gives K and V one width; use a layout that places them apart (K=0 ... ; K=1 ...) or equal widths");
  }

  std::optional<std::int64_t> groups(const Path& path) const {
    if (!s_.scale) return std::nullopt;
    if (s_.scale->group < 0)
      throw Error("scheme " + s_.name + ": scale group is " + number(s_.scale->group) + ", expected 0 or more");
    if (s_.scale->group == 0) return 1;
    const std::int64_t row = width(path);
    if (row % s_.scale->group != 0) {
      throw Error("a row of " + number(row) + " channels does not divide into scale groups of " + number(s_.scale->group) +
                  " (scheme " + s_.name + "); choose another head_dim or scheme");
    }
    return row / s_.scale->group;
  }

  /// Extent of a whole axis for a component.
  std::int64_t extent(Axis axis, Component component, const Path& path) const {
    switch (axis) {
      case Axis::layer:
        return g_.layers;
      case Axis::kv:
        return g_.kv;
      case Axis::block:
        return g_.blocks;
      case Axis::slot:
        return g_.block_size;
      case Axis::head:
        return g_.heads;
      case Axis::channel:
        break;
    }
    if (component == Component::data) return width(path);
    if (component == Component::global_scale) return 1;
    const auto count = groups(path);
    if (!count)
      throw Error("the layout places scales by C, but scheme '" + s_.name + "' has none; choose a scheme with scales");
    return *count;
  }

  Variables variables(const Path& path) const {
    Variables v{g_.layers, g_.blocks, g_.block_size, g_.heads, g_.head_dim, g_.v_head_dim, 0, std::nullopt};
    v.x = 128 / bits(s_.data);
    const bool one_width = g_.kv == 1 || g_.head_dim == g_.v_head_dim || path.at[static_cast<std::size_t>(Axis::kv)];
    if (one_width) v.G = groups_if_even(path);
    return v;
  }
  /// G is only an error where it is used.
  std::optional<std::int64_t> groups_if_even(const Path& path) const {
    if (!s_.scale || (s_.scale->group > 0 && width(path) % s_.scale->group != 0)) return std::nullopt;
    return groups(path);
  }

  static void components(const TemplatePart& part, std::optional<Component> outside, std::set<Component>& out) {
    const auto own = part.component ? part.component : outside;
    for (const TemplatePart& child : part.parts) components(child, own, out);
    if (part.parts.empty() && !part.pad) out.insert(own.value_or(Component::data));
  }

  /// The one extent of all components below.
  std::int64_t extent_of_all(Axis axis, const std::set<Component>& below, const Path& path) const {
    std::optional<std::int64_t> e;
    for (Component c : below) {
      const std::int64_t one = extent(axis, c, path);
      if (e && *e != one) {
        throw Error("C stands outside parts of different width (" + number(*e) + " and " + number(one) +
                    "); place C inside the braces");
      }
      e = one;
    }
    return e.value_or(axis == Axis::channel ? width(path) : extent(axis, Component::data, path));
  }

  /// A mode of the map, or nothing if the coordinate is fixed. Records on the path what was placed.
  std::optional<Mode> place(const ModeSpec& m, const std::set<Component>& below, Path& path) const {
    const auto a = static_cast<std::size_t>(m.axis);
    path.placed[a] = true;
    const Variables v = variables(path);
    const bool free_range = m.axis == Axis::channel && below == std::set<Component>{Component::scale} && !m.in_groups;
    const auto whole = [&] { return extent_of_all(m.axis, below, path); };
    const std::string text = std::string(1, letter(m.axis));
    switch (m.kind) {
      case ModeSpec::Kind::whole:
        return Mode{m.axis, whole(), 0, 1};
      case ModeSpec::Kind::outer:
      case ModeSpec::Kind::inner: {
        const std::int64_t n = m.a.value(v);
        const std::int64_t e = whole();
        if (n < 1 || e % n != 0) {
          throw Error("axis " + text + " of extent " + number(e) + " does not divide by " + m.a.text + " = " + number(n) +
                      "; choose a geometry that fits this layout");
        }
        return m.kind == ModeSpec::Kind::outer ? Mode{m.axis, e / n, 0, n} : Mode{m.axis, n, 0, 1};
      }
      case ModeSpec::Kind::at: {
        const std::int64_t at = m.a.value(v);
        if (at < 0 || (!free_range && at >= whole()))
          throw Error(text + '=' + m.a.text + " is " + number(at) + ": expected 0 to " + number(whole() - 1));
        path.at[a] = at;
        path.start[a] = at;
        return std::nullopt;
      }
      case ModeSpec::Kind::range:
        break;
    }
    std::int64_t low = m.a.value(v);
    std::int64_t high = m.b.value(v);
    if (m.in_groups) {
      const std::int64_t group = s_.scale->group;
      if (low % group != 0 || high % group != 0)
        throw Error("channels " + number(low) + ".." + number(high) + " do not divide into scale groups of " +
                    number(group));
      low /= group;
      high /= group;
    }
    if (low < 0 || high <= low || (!free_range && high > whole()))
      throw Error(text + '=' + m.a.text + ".." + m.b.text + " is " + number(low) + ".." + number(high) +
                  ": expected a range within 0.." + (free_range ? "any" : number(whole())));
    path.start[a] = low;
    return Mode{m.axis, high - low, 0, 1};
  }

  Built leaf(const TemplatePart& part, const Path& path) const {
    const Component component = path.component.value_or(Component::data);
    Plane plane;
    plane.component = component;
    plane.dtype = s_.data;
    if (part.dtype) {
      plane.dtype = *part.dtype;
    } else if (component == Component::scale) {
      if (!s_.scale)
        throw Error("the layout places scales, but scheme '" + s_.name + "' has none; choose a scheme with scales");
      plane.dtype = s_.scale->dtype;
    } else if (component == Component::global_scale) {
      if (!s_.global_scale) throw Error("the layout places global scales, but scheme '" + s_.name + "' has none");
      plane.dtype = *s_.global_scale;
    }
    plane.high_nibble_first = part.high_nibble_first;
    for (Axis axis : all_axes) {
      const auto a = static_cast<std::size_t>(axis);
      const bool counts = component != Component::global_scale || axis == Axis::layer || axis == Axis::kv;
      if (!path.placed[a] && counts) {
        const std::int64_t e = extent(axis, component, path);
        if (e != 1) {
          throw Error("axis " + std::string(1, letter(axis)) + " (" + std::string(name(axis)) + ") has extent " + number(e) +
                      ", but the template does not place it; add it, or use a geometry where it is 1");
        }
      }
      plane.origin[axis] = path.start[a];
      if (path.at[a]) plane.origin[axis] = *path.at[a];
      if (counts || path.placed[a]) {
        if (axis == Axis::layer) plane.origin[axis] = add(plane.origin[axis], g_.first_layer);
        if (axis == Axis::head) plane.origin[axis] = add(plane.origin[axis], g_.first_head);
      }
    }
    return {bits(plane.dtype), {plane}};
  }

  Built build(const TemplatePart& part, Path path) const {
    if (part.component) path.component = part.component;
    std::set<Component> below;
    components(part, path.component, below);
    // A fixed K decides the width of a row, wherever it appears in the part.
    for (const ModeSpec& m : part.modes)
      if (m.axis == Axis::kv && m.kind == ModeSpec::Kind::at) (void)place(m, below, path);
    std::vector<std::optional<Mode>> modes;
    for (const ModeSpec& m : part.modes) modes.push_back(place(m, below, path));

    Built built;
    if (!part.parts.empty()) {
      for (const TemplatePart& child : part.parts) {
        Built next = build(child, path);
        if (next.bits % 8 != 0) {
          throw Error("a part in braces has " + number(next.bits) +
                      " bits, which do not fill whole bytes; use an even extent");
        }
        for (Plane& plane : next.planes) {
          plane.offset = add(plane.offset, built.bits);
          built.planes.push_back(std::move(plane));
        }
        built.bits = add(built.bits, next.bits);
      }
    } else if (part.pad) {
      const std::int64_t bytes = part.pad->value(variables(path));
      if (bytes < 0)
        throw Error("pad " + part.pad->text + " is " + number(bytes) + " bytes; choose a geometry that leaves room for it");
      built.bits = mul(bytes, 8);
    } else {
      built = leaf(part, path);
    }

    for (std::size_t i = modes.size(); i-- > 0;) {
      if (!modes[i]) continue;
      Mode mode = *modes[i];
      mode.stride = built.bits;
      const std::int64_t outer = mul(built.bits, mode.extent);
      if (built.bits % 8 != 0 && mode.extent > 1 && outer % 8 != 0) {
        throw Error(number(mode.extent) + " codes of " + number(built.bits) + " bits along " +
                    std::string(1, letter(mode.axis)) + " do not fill whole bytes; use an even extent");
      }
      for (Plane& plane : built.planes) plane.modes.insert(plane.modes.begin(), mode);
      built.bits = outer;
    }
    return built;
  }

  /// "kv", "k" or "v" (scales: "scale", "k_scale" ...), then the other list levels: ".L3".
  std::string allocation_name(const TemplateRegion& region, const std::vector<std::int64_t>& index,
                              const std::vector<Plane>& planes) {
    Component component = Component::data;
    bool any_data = planes.empty();
    std::set<std::int64_t> kv;
    for (const Plane& plane : planes) {
      any_data = any_data || plane.component == Component::data;
      component = plane.component;
      const bool looped = std::any_of(plane.modes.begin(), plane.modes.end(),
                                      [](const Mode& m) { return m.axis == Axis::kv && m.extent > 1; });
      kv.insert(looped ? -1 : plane.origin[Axis::kv]);
    }
    const bool one = g_.kv == 2 && kv.size() == 1 && *kv.begin() >= 0;
    const std::string side = one ? (*kv.begin() == 0 ? "k" : "v") : "";
    std::string out = any_data ? (one ? side : "kv") : side + (one ? "_" : "") + std::string(name(component));
    for (std::size_t i = 0; i < index.size(); ++i) {
      const Axis axis = region.list[i];
      if (axis == Axis::kv) continue;
      const std::int64_t first = axis == Axis::layer ? g_.first_layer : axis == Axis::head ? g_.first_head : 0;
      out += std::string(".") + letter(axis) + number(add(index[i], first));
    }
    std::string unique = out;
    for (int n = 2; !names_.insert(unique).second; ++n) unique = out + '.' + std::to_string(n);
    return unique;
  }

  Geometry g_;
  const Scheme& s_;
  std::set<std::string> names_;
};

bool places(const TemplatePart& part, Component component, std::optional<Component> outside = std::nullopt) {
  const auto own = part.component ? part.component : outside;
  if (part.parts.empty()) return !part.pad && own == component;
  return std::any_of(part.parts.begin(), part.parts.end(), [&](const TemplatePart& p) { return places(p, component, own); });
}

/// The part with scales for its data: pads and leaves with an explicit dtype disappear, a split C becomes one C at the place
/// of its outer digit. nullopt if nothing is left.
std::optional<TemplatePart> scales_of(const TemplatePart& part, const ScaleSpec& scale,
                                      std::optional<Component> outside = std::nullopt) {
  const auto own = part.component ? part.component : outside;
  TemplatePart out;
  out.component = Component::scale;
  out.column = part.column;
  for (ModeSpec m : part.modes) {
    if (m.axis == Axis::channel) {
      if (m.kind == ModeSpec::Kind::at) return std::nullopt;  // a single channel has no scale
      if (m.kind == ModeSpec::Kind::inner) continue;
      if (m.kind == ModeSpec::Kind::outer) m.kind = ModeSpec::Kind::whole;
      if (m.kind == ModeSpec::Kind::range) {
        if (scale.group == 0) {  // the row's one scale goes with the part that holds channel 0
          if (m.a.text != "0") return std::nullopt;
          m.kind = ModeSpec::Kind::whole;
        } else {
          m.in_groups = true;
        }
      }
    }
    out.modes.push_back(m);
  }
  if (part.parts.empty()) {
    if (part.pad || part.dtype || own.value_or(Component::data) != Component::data) return std::nullopt;
    return out;
  }
  for (const TemplatePart& child : part.parts)
    if (auto inner = scales_of(child, scale, own)) out.parts.push_back(std::move(*inner));
  if (out.parts.empty()) return std::nullopt;
  return out;
}

ModeSpec whole(Axis axis) { return {axis, ModeSpec::Kind::whole, {}, {}, 0}; }

}  // namespace

Cache instantiate(std::string_view text, const Geometry& geometry, const Scheme& scheme, const TensorSpec& tensors) {
  const Tree tree = parse_template(text);
  Builder builder(geometry, scheme);
  Cache cache;
  bool scales = false;
  bool global_scales = false;
  for (const TemplateRegion& region : tree.regions) {
    builder.region(region, cache);
    scales = scales || places(region.part, Component::scale);
    global_scales = global_scales || places(region.part, Component::global_scale);
  }
  if (scheme.scale && !scales)
    for (const TemplateRegion& region : tree.regions)
      if (auto side = scales_of(region.part, *scheme.scale)) builder.region({region.list, std::move(*side)}, cache);
  if (scheme.global_scale && !global_scales) {
    TemplatePart part;
    part.component = Component::global_scale;
    part.modes = {whole(Axis::layer), whole(Axis::kv)};
    builder.region({{}, std::move(part)}, cache);
  }
  cache.tensors = tensor_views(cache, tensors, geometry.kv == 1);
  return cache;
}

}  // namespace kvcts::layout
