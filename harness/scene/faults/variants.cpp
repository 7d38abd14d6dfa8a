#include "scene/faults/variants.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

namespace kvcts::scenario {

using layout::Axis;
using layout::Cache;
using layout::Component;
using layout::Mode;
using layout::Plane;

namespace {

bool is_data(const Plane& plane) { return plane.component == Component::data; }

std::vector<Mode> by_stride(const Plane& plane) {
  std::vector<Mode> modes = plane.modes;
  std::ranges::stable_sort(modes, std::ranges::greater{}, [](const Mode& m) { return std::abs(m.stride); });
  return modes;
}

std::vector<std::size_t> in_order(std::size_t n) {
  std::vector<std::size_t> out(n);
  std::iota(out.begin(), out.end(), std::size_t{0});
  return out;
}

/// Strides without padding, outermost mode first.
void pack(std::vector<Mode>& modes, layout::Dtype dtype) {
  std::int64_t pitch = layout::bits(dtype);
  for (std::size_t i = modes.size(); i-- > 0;) modes[i].stride = pitch, pitch *= modes[i].extent;
}

std::string text_of(Axis axis) { return std::string(layout::name(axis)); }

// Modes in a new order, outermost first, with strides as packed as before: a level with the same set of inner modes keeps
// its stride, and so its padding.
Plane repacked(const Plane& plane, const std::vector<Mode>& was, const std::vector<std::size_t>& order) {
  Plane out = plane;
  out.modes = was;
  std::int64_t pitch = was.empty() ? 0 : std::abs(was.back().stride);
  std::set<std::size_t> inner;
  for (std::size_t level = was.size(); level-- > 0;) {
    const std::size_t i = order[level];
    Mode& mode = out.modes[level] = was[i];
    std::set<std::size_t> same;
    for (std::size_t k = i + 1; k < was.size(); ++k) same.insert(k);
    mode.stride = inner == same ? was[i].stride : pitch;
    pitch = std::abs(mode.stride) * mode.extent;
    inner.insert(i);
  }
  return out;
}

std::string letters(const std::vector<Mode>& modes, const std::vector<std::size_t>& order) {
  std::string out;
  for (const std::size_t i : order) {
    if (modes[i].extent == 1) continue;
    out += (out.empty() ? "" : " ") + std::string(1, letter(modes[i].axis));
  }
  return out;
}

// The class of an order: K and V moved among axes that keep theirs, or axes exchanged.
FaultClass class_of(const std::vector<Mode>& modes, const std::vector<std::size_t>& order) {
  std::vector<std::size_t> rest;
  for (const std::size_t i : order) {
    if (modes[i].axis != Axis::kv && modes[i].extent > 1) rest.push_back(i);
  }
  return std::ranges::is_sorted(rest) ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted;
}

// One change applied to every plane of a component at once.
template <class F>
Cache with(const Cache& cache, Component component, F&& change) {
  Cache out = cache;
  for (Plane& plane : out.planes) {
    if (plane.component == component) change(plane);
  }
  return out;
}

}  // namespace

bool fits(const Cache& cache) {
  try {
    for (const Plane& plane : cache.planes) layout::bounds(plane);
  } catch (const layout::Error&) {
    return false;
  }
  return true;
}

std::string order_text(const Plane& plane) {
  const std::vector<Mode> modes = by_stride(plane);
  return letters(modes, in_order(modes.size()));
}

Cache merged(const Cache& cache) {
  Cache out = cache;
  for (std::size_t i = 0; i < out.planes.size(); ++i) {
    Plane& k = out.planes[i];
    if (!is_data(k) || k.origin[Axis::kv] != 0) continue;
    for (std::size_t j = 0; j < out.planes.size(); ++j) {
      Plane v = out.planes[j];
      if (j == i || v.origin[Axis::kv] != 1 || v.offset == k.offset) continue;
      const std::int64_t step = v.offset - k.offset;
      v.origin[Axis::kv] = 0, v.offset = k.offset;
      if (!(v == k)) continue;
      k.modes.push_back({Axis::kv, 2, step, 1});
      out.planes.erase(out.planes.begin() + static_cast<std::ptrdiff_t>(j));
      if (j < i) --i;
      break;
    }
  }
  return out;
}

namespace {

// The axes of a plane, outermost first: planes with the same order.
std::string shape_of(const Plane& plane) {
  std::string out;
  for (const Mode& mode : by_stride(plane)) out += letter(mode.axis);
  return out;
}

using Order = std::vector<std::size_t>;

// Two axes exchanged, or one moved; `far`: every other order.
std::set<Order> orders_of(std::size_t n, bool far) {
  const Order identity = in_order(n);
  std::set<Order> near, orders;
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      Order order = identity;
      std::swap(order[a], order[b]);
      near.insert(order);
      order = identity;
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(a));
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(b), a);
      near.insert(order);
    }
  }
  if (!far) return near;
  Order order = identity;
  while (n <= 6 && std::next_permutation(order.begin(), order.end())) {
    if (!near.contains(order)) orders.insert(order);
  }
  return orders;
}

std::int64_t stride_in(const Plane& of, const Mode& like) {
  const auto found =
      std::ranges::find_if(of.modes, [&](const Mode& m) { return m.axis == like.axis && m.step == like.step; });
  return found == of.modes.end() ? 0 : found->stride;
}

// Scales in the order that the data has now: those inside rows of data move with them, others are packed in the new order.
Plane scales_as_data(Plane plane, const Plane& old, const Plane& data) {
  const bool inline_rows = plane.allocation == old.allocation && std::ranges::all_of(plane.modes, [&](const Mode& m) {
                             return m.extent == 1 || m.axis == Axis::channel || stride_in(old, m) == m.stride;
                           });
  if (inline_rows) {
    for (Mode& mode : plane.modes) {
      if (mode.axis != Axis::channel && mode.extent > 1) mode.stride = stride_in(data, mode);
    }
    return plane;
  }
  const std::vector<Mode> own = by_stride(plane);
  Order as_data = in_order(own.size());
  std::ranges::stable_sort(as_data, [&](std::size_t a, std::size_t b) {
    return std::abs(stride_in(data, own[a])) > std::abs(stride_in(data, own[b]));
  });
  return repacked(plane, own, as_data);
}

// Data planes laid out like this one.
std::vector<Variant> permuted_like(const Cache& cache, std::vector<Plane>::const_iterator first, bool far, bool scales) {
  std::vector<Variant> out;
  const std::vector<Mode> modes = by_stride(*first);
  const std::string shape = shape_of(*first), was = order_text(*first);
  std::set<std::string> seen;
  for (const Order& order : orders_of(modes.size(), far)) {
    const std::string now = letters(modes, order);
    if (now == was) continue;
    Cache variant = cache;
    for (Plane& plane : variant.planes) {
      if (is_data(plane) && shape_of(plane) == shape) plane = repacked(plane, by_stride(plane), order);
    }
    if (!fits(variant) || !seen.insert(layout::to_text(variant)).second) continue;
    Cache scaled = variant;
    for (Plane& plane : scaled.planes) {
      if (!is_data(plane))
        plane = scales_as_data(plane, *first, variant.planes[static_cast<std::size_t>(first - cache.planes.begin())]);
    }
    const bool with_scales = scales && !(scaled == variant) && fits(scaled);
    const std::string words = "memory order " + was + " taken for " + now;
    out.push_back({class_of(modes, order), words, std::move(variant)});
    if (with_scales) out.push_back({class_of(modes, order), words + ", scales too", std::move(scaled)});
  }
  return out;
}

// Blocks of k times fewer (`finer`) or as many more tokens in one plane; the tokens that a block had, 0 where blocks have no
// slots to divide. Nothing: they are no multiple of k.
std::optional<std::int64_t> reblock(Plane& plane, std::int64_t k, bool finer) {
  std::vector<Mode> modes = by_stride(plane);
  const auto mode_of = [&](Axis axis) { return std::ranges::find(modes, axis, &Mode::axis); };
  auto block = mode_of(Axis::block), slot = mode_of(Axis::slot);
  if (block == modes.end() || (slot == modes.end() && finer)) return 0;
  if (slot == modes.end()) {
    plane.modes.push_back({Axis::slot, 1, std::abs(block->stride), 1});
    modes = by_stride(plane);
    block = mode_of(Axis::block), slot = mode_of(Axis::slot);
  }
  if (finer && slot->extent % k != 0) return std::nullopt;
  const std::int64_t tokens = slot->extent;
  slot->extent = finer ? slot->extent / k : slot->extent * k;
  block->extent = finer ? block->extent * k : std::max<std::int64_t>(1, block->extent / k);
  // Repacks strides between the slot's level and the block's; outside the block they stay.
  std::int64_t pitch = 0;
  for (auto mode = modes.end(); mode != modes.begin();) {
    --mode;
    if (mode == slot) pitch = slot->stride * slot->extent;
    if (mode > block && mode < slot) mode->stride = pitch, pitch *= mode->extent;
    if (mode == block) mode->stride = finer ? mode->stride / k : mode->stride * k;
  }
  plane.modes = modes;
  return tokens;
}

/// Strides that an axis of a data plane may be taken to have; `was`: that of its innermost mode, 0 if it has none.
std::set<std::int64_t> strides_of(const Plane& plane, Axis axis, std::int64_t& was) {
  std::set<std::int64_t> out;
  const std::vector<Mode> modes = by_stride(plane);
  const std::int64_t row = row_bits(plane);
  for (std::size_t i = 0; i < modes.size(); ++i) {
    if (modes[i].axis != axis || modes[i].extent < 2) continue;
    was = modes[i].stride;
    std::int64_t packed = layout::bits(plane.dtype);
    for (std::size_t k = i + 1; k < modes.size(); ++k) packed *= modes[k].extent;
    out.insert(packed);
    for (std::int64_t k = 1; k <= 12; ++k) out.insert(row * k);
    for (std::size_t a = 0; a < modes.size(); ++a) {
      if (modes[a].axis == Axis::channel) continue;
      out.insert(row * modes[a].extent);
      for (std::size_t b = a + 1; b < modes.size(); ++b) {
        if (modes[b].axis != Axis::channel)
          out.insert(row * modes[a].extent * modes[b].extent), out.insert(row * 2 * modes[a].extent * modes[b].extent);
      }
    }
    for (const std::int64_t f : {2, 3, 4, 8}) {
      out.insert(was * f), out.insert(packed * f);
      if (was % (f * 8) == 0) out.insert(was / f);
    }
    for (const Mode& mode : modes) {
      out.insert(was * mode.extent);
      if (was % (mode.extent * 8) == 0) out.insert(was / mode.extent);
      out.insert(mode.stride);
    }
  }
  return out;
}

// In data order, or with two of their axes exchanged.
void scales_exchanged(const Cache& cache, const std::vector<Mode>& modes, std::vector<Variant>& out) {
  for (std::size_t a = 0; a < modes.size(); ++a) {
    for (std::size_t b = a + 1; b < modes.size(); ++b) {
      Order order = in_order(modes.size());
      std::swap(order[a], order[b]);
      Cache variant = with(cache, Component::scale, [&](Plane& plane) {
        const std::vector<Mode> own = by_stride(plane);
        if (own.size() == order.size()) plane = repacked(plane, own, order);
      });
      const bool groups = modes[a].axis == Axis::channel || modes[b].axis == Axis::channel;
      out.push_back({groups ? FaultClass::scale_swizzle : FaultClass::scale_misplaced,
                     "scales with " + text_of(modes[a].axis) + " and " + text_of(modes[b].axis) + " exchanged",
                     std::move(variant)});
    }
  }
}

// The first one's for all: K's for V, one head's for every head.
void scales_of_the_first(const Cache& cache, const std::vector<Mode>& modes, std::vector<Variant>& out) {
  for (const Mode& mode : modes) {
    if (mode.extent == 1 || mode.stride == 0) continue;
    Cache variant = with(cache, Component::scale, [&](Plane& plane) {
      std::ranges::replace(plane.modes, mode, Mode{mode.axis, mode.extent, 0, mode.step});
    });
    if (fits(variant))
      out.push_back(
          {FaultClass::scale_misplaced, "the scales of the first " + text_of(mode.axis) + " for all", std::move(variant)});
  }
}

/// Scales that follow the rows of one level of the data.
struct ScalesAfter {
  const std::vector<Mode>& rows;  ///< of the data, outermost first
  std::size_t level{0};
  bool packed{false}, without_kv{false};  ///< a region after the data of K and V each, or of both
};

std::vector<Mode> modes_after(const Plane& plane, const ScalesAfter& how) {
  std::int64_t pitch = row_bits(plane);
  std::vector<Mode> out = by_stride(plane);
  for (std::size_t k = out.size(); k-- > 0;) {
    if (out[k].axis == Axis::channel) continue;
    const auto same = std::ranges::find(how.rows, out[k].axis, &Mode::axis);
    if (same == how.rows.end()) continue;
    const bool inner =
        static_cast<std::size_t>(same - how.rows.begin()) >= how.level && !(how.without_kv && out[k].axis == Axis::kv);
    out[k].stride = how.packed && inner ? pitch : same->stride;
    if (how.packed && inner) pitch *= out[k].extent;
  }
  return out;
}

// Inline after each row of data, or after all rows of a kv, or of a block.
void scales_after_rows(const Cache& cache, const Plane& data, std::vector<Variant>& out) {
  const std::vector<Mode> rows = by_stride(data);
  const std::int64_t row = layout::domain(data).hi[Axis::channel] * layout::bits(data.dtype);
  for (std::size_t level = 0; level < rows.size(); ++level) {
    std::int64_t behind = row;  // the extent of the modes inside this level
    for (std::size_t k = level; k < rows.size(); ++k) {
      if (rows[k].axis != Axis::channel) behind *= rows[k].extent;
    }
    for (const int options : {0, 1, 2, 3}) {
      const ScalesAfter how{rows, level, (options & 1) != 0, (options & 2) != 0};
      std::int64_t span = behind;
      for (std::size_t k = level; k < rows.size() && how.without_kv; ++k) {
        if (rows[k].axis == Axis::kv) span /= rows[k].extent;
      }
      if (how.without_kv && span == behind) continue;
      bool changed = false;
      Cache variant = with(cache, Component::scale, [&](Plane& plane) {
        if (plane.allocation != data.allocation) return;
        plane.modes = modes_after(plane, how);
        plane.offset = data.offset + span;
        changed = true;
      });
      if (changed && fits(variant))
        out.push_back({FaultClass::scale_misplaced,
                       "scales taken to lie after the data of each " + text_of(rows[level].axis) +
                           (how.without_kv ? ", K and V apart" : "") + (how.packed ? ", packed" : ""),
                       std::move(variant)});
    }
  }
}

// With one of the data's strides: unchanged, or divided by the group.
void scales_restrided(const Cache& cache, const Plane& data, const Plane& scale, std::vector<Variant>& out) {
  for (const Axis axis : layout::all_axes) {
    std::set<std::int64_t> strides;
    for (const Mode& m : data.modes) {
      if (m.axis != axis) continue;
      const std::int64_t width = layout::bits(scale.dtype), data_width = layout::bits(data.dtype);
      strides.insert(m.stride);
      strides.insert(m.stride / data_width * width);
      for (const std::int64_t group : {16, 32, 64, 128}) {
        if (m.stride / data_width % group == 0) strides.insert(m.stride / data_width / group * width);
      }
    }
    for (const Mode& m : scale.modes) {
      if (m.axis == axis) strides.insert(m.stride * 2), strides.insert(m.stride / 2);
    }
    for (const std::int64_t stride : strides) {
      bool changed = false;
      Cache variant = with(cache, Component::scale, [&](Plane& plane) {
        for (Mode& m : plane.modes) {
          if (m.axis == axis && m.stride != stride && m.extent > 1) m.stride = stride, changed = true;
        }
      });
      if (!changed || stride == 0 || !fits(variant)) continue;
      out.push_back(
          {FaultClass::wrong_stride,
           "scales with a stride of " + std::to_string(stride / 8) + " bytes from " + text_of(axis) + " to " + text_of(axis),
           std::move(variant)});
    }
  }
}

// Packed with another extent of an axis; false: it has that one.
bool resize(Plane& plane, Axis axis, std::int64_t extent) {
  std::vector<Mode> modes = by_stride(plane);
  const auto mode = std::ranges::find_if(modes, [&](const Mode& m) { return m.axis == axis && m.extent != extent; });
  if (mode == modes.end()) return false;
  mode->extent = extent;
  pack(modes, plane.dtype);
  plane.modes = std::move(modes);
  return true;
}

std::int64_t extent_of(const Plane& plane, Axis axis) {
  const layout::Box box = layout::domain(plane);
  return box.hi[axis] - box.lo[axis];
}

std::set<std::int64_t> other_extents(const Cache& cache, Axis axis) {
  std::set<std::int64_t> out;
  for (const Plane& plane : cache.planes) {
    if (!is_data(plane)) continue;
    const std::int64_t was = extent_of(plane, axis);
    for (const std::int64_t f : {2, 4, 8}) {
      out.insert(was * f);
      if (was % f == 0) out.insert(was / f);
    }
    for (const std::int64_t tile : {16, 32, 64, 128, 256}) {
      if (axis == Axis::channel && was > tile / 2) out.insert((was + tile - 1) / tile * tile);
    }
  }
  return out;
}

}  // namespace

std::vector<Variant> permuted(const Cache& given, bool far, bool scales) {
  const Cache cache = merged(given);
  std::vector<Variant> out;
  std::set<std::string> shapes;
  for (auto plane = cache.planes.begin(); plane != cache.planes.end(); ++plane) {
    if (!is_data(*plane) || !shapes.insert(shape_of(*plane)).second) continue;
    for (Variant& variant : permuted_like(cache, plane, far, scales)) {
      if (shapes.size() > 1) variant.words += ", where it lies so";
      out.push_back(std::move(variant));
    }
  }
  return out;
}

std::vector<Variant> renamed(const Cache& given) {
  std::vector<Variant> out;
  const Cache cache = merged(given);
  for (std::size_t a = 0; a < layout::axis_count; ++a) {
    for (std::size_t b = a + 1; b < layout::axis_count; ++b) {
      const Axis x = layout::all_axes[a], y = layout::all_axes[b];
      bool changed = false;
      Cache variant = with(cache, Component::data, [&](Plane& plane) {
        for (Mode& mode : plane.modes) {
          if (mode.axis == x)
            mode.axis = y, changed = true;
          else if (mode.axis == y)
            mode.axis = x, changed = true;
        }
        std::swap(plane.origin[x], plane.origin[y]);
      });
      if (!changed) continue;
      const bool kv = x == Axis::kv || y == Axis::kv;
      // Only their strides: each axis counts correctly, but in steps of the other.
      bool both = true;
      Cache strides = with(cache, Component::data, [&](Plane& plane) {
        Mode *p = nullptr, *q = nullptr;
        for (Mode& mode : plane.modes) {
          if (mode.axis == x && (!p || std::abs(mode.stride) > std::abs(p->stride))) p = &mode;
          if (mode.axis == y && (!q || std::abs(mode.stride) > std::abs(q->stride))) q = &mode;
        }
        if (p && q)
          std::swap(p->stride, q->stride);
        else
          both = false;
      });
      if (both && fits(strides)) {
        out.push_back({kv ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted,
                       "strides of " + text_of(x) + " and " + text_of(y) + " exchanged", std::move(strides)});
      }
      out.push_back({kv ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted,
                     "the " + text_of(x) + " axis taken for the " + text_of(y) + " axis and the reverse",
                     std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> reblocked(const Cache& cache) {
  std::vector<Variant> out;
  for (const std::int64_t k : {2, 4, 8, 16, 3, 5, 6, 12, 32, 33, 64, 128}) {
    for (const bool finer : {true, false}) {
      Cache variant = cache;
      std::int64_t n = 0;
      bool divides = true;
      for (Plane& plane : variant.planes) {
        const auto tokens = reblock(plane, k, finer);
        divides = divides && tokens;
        if (tokens.value_or(0) != 0) n = *tokens;
      }
      if (!divides || n == 0 || !fits(variant)) continue;
      const std::string words =
          "blocks of " + std::to_string(n) + " tokens taken for blocks of " + std::to_string(finer ? n / k : n * k);
      // The pool may also be read as a packed one with the new numbers: everything outside the blocks moves.
      Cache packed = variant;
      for (Plane& plane : packed.planes) pack(plane.modes, plane.dtype);
      if (!(packed == variant) && fits(packed)) {
        out.push_back({FaultClass::wrong_block_size, words + ", repacked", packed});
        // K and V as separate planes: the second begins where the first ends.
        std::int64_t end = 0;
        for (Plane& plane : packed.planes) {
          if (plane.offset != 0 && end != 0) plane.offset = end;
          end = plane.offset + layout::bits(plane.dtype);
          for (const Mode& mode : plane.modes) end += mode.stride * (mode.extent - 1);
        }
        if (fits(packed)) out.push_back({FaultClass::wrong_block_size, words + ", repacked, V after K", packed});
      }
      out.push_back({FaultClass::wrong_block_size, words, std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> restrided(const Cache& cache, const std::vector<std::int64_t>& others) {
  std::vector<Variant> out;
  const auto data = std::ranges::find_if(cache.planes, is_data);
  if (data == cache.planes.end()) return out;
  std::set<std::string> seen{layout::to_text(cache)};
  for (const Axis axis : layout::all_axes) {
    std::int64_t was = 0;
    std::set<std::int64_t> candidates = strides_of(*data, axis, was);
    if (was == 0) continue;
    candidates.insert(others.begin(), others.end());
    if (axis != Axis::block) candidates.insert(0);  // left out of the address; of blocks it is a table of zeros
    for (const std::int64_t stride : candidates) {
      if (stride == was) continue;
      Cache variant = with(cache, Component::data, [&](Plane& plane) {
        Mode* outer = nullptr;
        for (Mode& mode : plane.modes) {
          if (mode.axis == axis && (!outer || std::abs(mode.stride) > std::abs(outer->stride))) outer = &mode;
        }
        if (outer) outer->stride = stride;
      });
      if (!fits(variant) || !seen.insert(layout::to_text(variant)).second) continue;
      // 4-bit codes, two per byte, counted as one per byte.
      const bool packed = layout::bits(data->dtype) == 4 && (stride == was * 2 || stride * 2 == was);
      out.push_back({packed ? FaultClass::packed_dim_misread : FaultClass::wrong_stride,
                     "a stride of " + std::to_string(stride / 8) + " bytes from " + text_of(axis) + " to " + text_of(axis) +
                         " instead of " + std::to_string(was / 8),
                     std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> rescaled(const Cache& cache) {
  std::vector<Variant> out;
  const auto data = std::ranges::find_if(cache.planes, is_data);
  const auto scale = std::ranges::find(cache.planes, Component::scale, &Plane::component);
  if (scale == cache.planes.end()) return out;
  const std::vector<Mode> modes = by_stride(*scale);
  scales_exchanged(cache, modes, out);
  scales_of_the_first(cache, modes, out);
  scales_after_rows(cache, *data, out);
  scales_restrided(cache, *data, *scale, out);
  return out;
}

std::vector<Variant> resized(const Cache& cache) {
  std::vector<Variant> out;
  for (const Axis axis : {Axis::channel, Axis::head, Axis::layer}) {
    for (const std::int64_t now : other_extents(cache, axis)) {
      bool changed = false, four_bits = false;
      std::int64_t was = 0;
      Cache variant = with(cache, Component::data, [&](Plane& plane) {
        was = extent_of(plane, axis);
        if (now == 0 || now == was) return;
        four_bits = layout::bits(plane.dtype) == 4;
        changed = resize(plane, axis, now) || changed;
      });
      if (!changed || !fits(variant)) continue;
      const FaultClass fault_class = axis == Axis::head                   ? FaultClass::head_shard_mapping
                                     : axis == Axis::channel && four_bits ? FaultClass::packed_dim_misread
                                                                          : FaultClass::wrong_stride;
      const std::string words = std::to_string(was) + " " + text_of(axis) + "s taken for " + std::to_string(now);
      bool scales = false;
      Cache both = with(variant, Component::scale, [&](Plane& plane) {
        const std::int64_t own = extent_of(plane, axis),
                           other = own * now / was;  // groups of channels, as many heads or layers
        if (other > 0 && own * now % was == 0) scales = resize(plane, axis, other) || scales;
      });
      out.push_back({fault_class, words, std::move(variant)});
      if (scales && fits(both)) out.push_back({fault_class, words + ", scales too", std::move(both)});
    }
  }
  return out;
}

std::vector<Variant> recoded(const Cache& cache) {
  std::vector<Variant> out;
  const auto data = std::ranges::find_if(cache.planes, is_data);
  if (data == cache.planes.end()) return out;
  for (const layout::Dtype dtype : layout::all_dtypes()) {
    if (dtype == data->dtype || layout::bits(dtype) != layout::bits(data->dtype)) continue;
    Cache variant = with(cache, Component::data, [&](Plane& plane) {
      if (layout::bits(plane.dtype) == layout::bits(dtype)) plane.dtype = dtype;
    });
    out.push_back({FaultClass::dtype_reinterpreted,
                   std::string(layout::name(data->dtype)) + " taken for " + std::string(layout::name(dtype)),
                   std::move(variant)});
  }
  if (layout::bits(data->dtype) == 4) {
    out.push_back({FaultClass::dtype_reinterpreted, "the two codes of a byte taken in the other order",
                   with(cache, Component::data, [](Plane& plane) { plane.high_nibble_first = !plane.high_nibble_first; })});
  }
  return out;
}

}  // namespace kvcts::scenario
