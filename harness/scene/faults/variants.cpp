#include "scene/faults/variants.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
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
  std::stable_sort(modes.begin(), modes.end(),
                   [](const Mode& a, const Mode& b) { return std::abs(a.stride) > std::abs(b.stride); });
  return modes;
}

// Modes in a new order, outermost first, with strides as packed as before: a level with the same set of inner modes keeps
// its stride, and so its padding.
Plane repacked(const Plane& plane, const std::vector<Mode>& was, const std::vector<std::size_t>& order) {
  Plane out = plane;
  out.modes.clear();
  std::vector<Mode> modes(was.size());
  std::int64_t pitch = was.empty() ? 0 : std::abs(was.back().stride);
  std::set<std::size_t> inner;
  for (std::size_t level = was.size(); level-- > 0;) {
    const std::size_t i = order[level];
    modes[level] = was[i];
    std::set<std::size_t> same;
    for (std::size_t k = i + 1; k < was.size(); ++k) same.insert(k);
    modes[level].stride = inner == same ? was[i].stride : pitch;
    pitch = std::abs(modes[level].stride) * modes[level].extent;
    inner.insert(i);
  }
  out.modes = std::move(modes);
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
  return std::is_sorted(rest.begin(), rest.end()) ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted;
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
  std::vector<std::size_t> order(modes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return letters(modes, order);
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

// Data planes laid out like this one.
std::vector<Variant> permuted_like(const Cache& cache, std::vector<Plane>::const_iterator first, bool far, bool scales) {
  std::vector<Variant> out;
  const std::vector<Mode> modes = by_stride(*first);
  const std::string shape = shape_of(*first);
  const std::size_t n = modes.size();
  std::vector<std::size_t> identity(n);
  std::iota(identity.begin(), identity.end(), std::size_t{0});
  std::set<std::vector<std::size_t>> near, orders;
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      auto order = identity;
      if (a < b) {
        std::swap(order[a], order[b]);
        near.insert(order);
      }
      order = identity;
      const std::size_t moved = order[a];
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(a));
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(b), moved);
      near.insert(order);
    }
  }
  if (far && n <= 6) {
    auto order = identity;
    while (std::next_permutation(order.begin(), order.end())) {
      if (!near.contains(order)) orders.insert(order);
    }
  } else if (!far) {
    orders = near;
  }
  std::set<std::string> seen;
  for (const auto& order : orders) {
    if (order == identity) continue;
    const std::string now = letters(modes, order), was = letters(modes, identity);
    if (now == was) continue;
    Cache variant = cache;
    for (Plane& plane : variant.planes) {
      if (is_data(plane) && shape_of(plane) == shape) plane = repacked(plane, by_stride(plane), order);
    }
    if (!fits(variant) || !seen.insert(layout::to_text(variant)).second) continue;
    // Scales in the same order: those inside rows of data move with them, others are packed in the new order.
    Cache scaled = variant;
    for (Plane& plane : scaled.planes) {
      if (is_data(plane)) continue;
      const Plane& old = cache.planes[static_cast<std::size_t>(first - cache.planes.begin())];
      const Plane& data = variant.planes[static_cast<std::size_t>(first - cache.planes.begin())];
      const auto stride_in = [](const Plane& of, const Mode& like) {
        const auto found = std::find_if(of.modes.begin(), of.modes.end(),
                                        [&](const Mode& m) { return m.axis == like.axis && m.step == like.step; });
        return found == of.modes.end() ? 0 : found->stride;
      };
      const bool inline_rows =
          plane.allocation == old.allocation && std::all_of(plane.modes.begin(), plane.modes.end(), [&](const Mode& m) {
            return m.extent == 1 || m.axis == Axis::channel || stride_in(old, m) == m.stride;
          });
      if (inline_rows) {
        for (Mode& mode : plane.modes) {
          if (mode.axis != Axis::channel && mode.extent > 1) mode.stride = stride_in(data, mode);
        }
        continue;
      }
      std::vector<Mode> own = by_stride(plane);
      std::vector<std::size_t> as_data(own.size());
      std::iota(as_data.begin(), as_data.end(), std::size_t{0});
      std::stable_sort(as_data.begin(), as_data.end(), [&](std::size_t a, std::size_t b) {
        return std::abs(stride_in(data, own[a])) > std::abs(stride_in(data, own[b]));
      });
      plane = repacked(plane, own, as_data);
    }
    const bool with_scales = scales && !(scaled == variant) && fits(scaled);
    out.push_back({class_of(modes, order), "memory order " + was + " taken for " + now, std::move(variant)});
    if (with_scales)
      out.push_back(
          {class_of(modes, order), "memory order " + was + " taken for " + now + ", scales too", std::move(scaled)});
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
                       std::string("strides of ") + std::string(layout::name(x)) + " and " + std::string(layout::name(y)) +
                           " exchanged",
                       std::move(strides)});
      }
      out.push_back({kv ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted,
                     std::string("the ") + std::string(layout::name(x)) + " axis taken for the " +
                         std::string(layout::name(y)) + " axis and the reverse",
                     std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> reblocked(const Cache& cache) {
  std::vector<Variant> out;
  for (const std::int64_t k : {2, 4, 8, 16, 3, 5, 6, 12, 32, 33, 64, 128}) {
    for (const bool finer : {true, false}) {
      bool good = true, changed = false;
      Cache variant = cache;
      std::int64_t n = 0;
      for (Plane& plane : variant.planes) {
        std::vector<Mode> modes = by_stride(plane);
        auto block = std::find_if(modes.begin(), modes.end(), [](const Mode& m) { return m.axis == Axis::block; });
        auto slot = std::find_if(modes.begin(), modes.end(), [](const Mode& m) { return m.axis == Axis::slot; });
        if (block == modes.end()) continue;
        if (slot == modes.end() && finer) continue;
        if (slot == modes.end()) {
          modes.push_back({Axis::slot, 1, std::abs(block->stride), 1});
          std::stable_sort(modes.begin(), modes.end(),
                           [](const Mode& p, const Mode& q) { return std::abs(p.stride) > std::abs(q.stride); });
          block = std::find_if(modes.begin(), modes.end(), [](const Mode& m) { return m.axis == Axis::block; });
          slot = std::find_if(modes.begin(), modes.end(), [](const Mode& m) { return m.axis == Axis::slot; });
        }
        if (finer ? slot->extent % k != 0 : false) {
          good = false;
          break;
        }
        std::vector<std::size_t> order(modes.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const std::int64_t old_extent = slot->extent;
        slot->extent = finer ? slot->extent / k : slot->extent * k;
        block->extent = finer ? block->extent * k : std::max<std::int64_t>(1, block->extent / k);
        n = old_extent;
        // Repacks strides between the slot's level and the block's; outside the block they stay.
        std::int64_t pitch = 0;
        for (std::size_t i = modes.size(); i-- > 0;) {
          const bool inner = &modes[i] > &*block && &modes[i] < &*slot;
          if (&modes[i] == &*slot) pitch = slot->stride * slot->extent;
          if (inner) {
            modes[i].stride = pitch;
            pitch *= modes[i].extent;
          }
          if (&modes[i] == &*block) modes[i].stride = finer ? modes[i].stride / k : modes[i].stride * k;
        }
        plane.modes = modes;
        changed = true;
      }
      if (!good || !changed || n == 0 || !fits(variant)) continue;
      // The pool may also be read as a packed one with the new numbers: everything outside the blocks moves.
      Cache packed = variant;
      for (Plane& plane : packed.planes) {
        std::int64_t pitch = layout::bits(plane.dtype);
        for (std::size_t i = plane.modes.size(); i-- > 0;) {
          plane.modes[i].stride = pitch;
          pitch *= plane.modes[i].extent;
        }
      }
      if (!(packed == variant) && fits(packed)) {
        out.push_back({FaultClass::wrong_block_size,
                       "blocks of " + std::to_string(n) + " tokens taken for blocks of " +
                           std::to_string(finer ? n / k : n * k) + ", repacked",
                       packed});
        // K and V as separate planes: the second begins where the first ends.
        std::int64_t end = 0;
        for (Plane& plane : packed.planes) {
          if (plane.offset != 0 && end != 0) plane.offset = end;
          end = plane.offset + layout::bits(plane.dtype);
          for (const Mode& mode : plane.modes) end += mode.stride * (mode.extent - 1);
        }
        if (fits(packed))
          out.push_back({FaultClass::wrong_block_size,
                         "blocks of " + std::to_string(n) + " tokens taken for blocks of " +
                             std::to_string(finer ? n / k : n * k) + ", repacked, V after K",
                         packed});
      }
      out.push_back(
          {FaultClass::wrong_block_size,
           "blocks of " + std::to_string(n) + " tokens taken for blocks of " + std::to_string(finer ? n / k : n * k),
           std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> restrided(const Cache& cache, const std::vector<std::int64_t>& others) {
  std::vector<Variant> out;
  std::set<std::string> seen{layout::to_text(cache)};
  for (const Axis axis : layout::all_axes) {
    std::set<std::int64_t> candidates;
    std::int64_t was = 0;
    bool four_bits = false;
    for (const Plane& plane : cache.planes) {
      if (!is_data(plane)) continue;
      four_bits = layout::bits(plane.dtype) == 4;
      const std::vector<Mode> modes = by_stride(plane);
      for (std::size_t i = 0; i < modes.size(); ++i) {
        if (modes[i].axis != axis || modes[i].extent < 2) continue;
        was = modes[i].stride;
        std::int64_t packed = layout::bits(plane.dtype);
        for (std::size_t k = i + 1; k < modes.size(); ++k) packed *= modes[k].extent;
        candidates.insert(packed);
        std::int64_t row = layout::bits(plane.dtype);
        for (const Mode& mode : modes) {
          if (mode.axis == Axis::channel) row *= mode.extent;
        }
        for (std::int64_t k = 1; k <= 12; ++k) candidates.insert(row * k);
        for (std::size_t a = 0; a < modes.size(); ++a) {
          if (modes[a].axis == Axis::channel) continue;
          candidates.insert(row * modes[a].extent);
          for (std::size_t b = a + 1; b < modes.size(); ++b) {
            if (modes[b].axis != Axis::channel)
              candidates.insert(row * modes[a].extent * modes[b].extent),
                  candidates.insert(row * 2 * modes[a].extent * modes[b].extent);
          }
        }
        for (const std::int64_t f : {2, 3, 4, 8}) {
          candidates.insert(was * f), candidates.insert(packed * f);
          if (was % (f * 8) == 0) candidates.insert(was / f);
        }
        for (std::size_t k = 0; k < modes.size(); ++k) {
          candidates.insert(was * modes[k].extent);
          if (was % (modes[k].extent * 8) == 0) candidates.insert(was / modes[k].extent);
          candidates.insert(modes[k].stride);
        }
      }
      break;
    }
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
      const bool packed = four_bits && (stride == was * 2 || stride * 2 == was);
      out.push_back({packed ? FaultClass::packed_dim_misread : FaultClass::wrong_stride,
                     "a stride of " + std::to_string(stride / 8) + " bytes from " + std::string(layout::name(axis)) +
                         " to " + std::string(layout::name(axis)) + " instead of " + std::to_string(was / 8),
                     std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> rescaled(const Cache& cache) {
  std::vector<Variant> out;
  const auto data = std::find_if(cache.planes.begin(), cache.planes.end(), is_data);
  const auto scale =
      std::find_if(cache.planes.begin(), cache.planes.end(), [](const Plane& p) { return p.component == Component::scale; });
  if (scale == cache.planes.end()) {
    return out;
  }
  // In data order, or with two of their axes exchanged.
  const std::vector<Mode> modes = by_stride(*scale);
  for (std::size_t a = 0; a < modes.size(); ++a) {
    for (std::size_t b = a + 1; b < modes.size(); ++b) {
      std::vector<std::size_t> order(modes.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::swap(order[a], order[b]);
      Cache variant = with(cache, Component::scale, [&](Plane& plane) {
        const std::vector<Mode> own = by_stride(plane);
        if (own.size() == order.size()) plane = repacked(plane, own, order);
      });
      const bool groups = modes[a].axis == Axis::channel || modes[b].axis == Axis::channel;
      out.push_back({groups ? FaultClass::scale_swizzle : FaultClass::scale_misplaced,
                     std::string("scales with ") + std::string(layout::name(modes[a].axis)) + " and " +
                         std::string(layout::name(modes[b].axis)) + " exchanged",
                     std::move(variant)});
    }
  }
  // The first one's for all: K's for V, one head's for every head.
  for (const Mode& mode : modes) {
    if (mode.extent == 1 || mode.stride == 0) continue;
    Cache variant = with(cache, Component::scale, [&](Plane& plane) {
      for (Mode& m : plane.modes) {
        if (m == mode) m.stride = 0;
      }
    });
    if (fits(variant))
      out.push_back({FaultClass::scale_misplaced,
                     "the scales of the first " + std::string(layout::name(mode.axis)) + " for all", std::move(variant)});
  }
  // Inline after each row of data, or after all rows of a kv, or of a block.
  {
    const std::vector<Mode> rows = by_stride(*data);
    const std::int64_t row = layout::domain(*data).hi[Axis::channel] * layout::bits(data->dtype);
    for (std::size_t level = 0; level < rows.size(); ++level) {
      std::int64_t behind = row;  // the extent of the modes inside this level
      for (std::size_t k = level; k < rows.size(); ++k) {
        if (rows[k].axis != Axis::channel) behind *= rows[k].extent;
      }
      for (const int how : {0, 1, 2, 3}) {
        const bool packed = how & 1, without_kv = how & 2;  // a region after the data of K and V each, or of both
        std::int64_t span = behind;
        for (std::size_t k = level; k < rows.size() && without_kv; ++k) {
          if (rows[k].axis == Axis::kv) span /= rows[k].extent;
        }
        if (without_kv && span == behind) continue;
        bool changed = false;
        Cache variant = with(cache, Component::scale, [&](Plane& plane) {
          if (plane.allocation != data->allocation) return;
          std::int64_t pitch = layout::bits(plane.dtype);
          for (const Mode& m : plane.modes) {
            if (m.axis == Axis::channel) pitch *= m.extent;
          }
          std::vector<Mode> own = by_stride(plane);
          for (std::size_t k = own.size(); k-- > 0;) {
            if (own[k].axis == Axis::channel) continue;
            const auto same = std::find_if(rows.begin(), rows.end(), [&](const Mode& m) { return m.axis == own[k].axis; });
            if (same == rows.end()) continue;
            const bool inner =
                static_cast<std::size_t>(same - rows.begin()) >= level && !(without_kv && own[k].axis == Axis::kv);
            own[k].stride = packed && inner ? pitch : same->stride;
            if (packed && inner) pitch *= own[k].extent;
          }
          plane.modes = own;
          plane.offset = data->offset + span;
          changed = true;
        });
        if (changed && fits(variant))
          out.push_back({FaultClass::scale_misplaced,
                         "scales taken to lie after the data of each " +
                             (level < rows.size() ? std::string(layout::name(rows[level].axis)) : std::string("row")) +
                             (without_kv ? ", K and V apart" : "") + (packed ? ", packed" : ""),
                         std::move(variant)});
      }
    }
  }
  // With one of the data's strides: unchanged, or divided by the group.
  for (const Axis axis : layout::all_axes) {
    std::set<std::int64_t> strides;
    for (const Mode& m : data->modes) {
      if (m.axis != axis) continue;
      const std::int64_t width = layout::bits(scale->dtype), data_width = layout::bits(data->dtype);
      strides.insert(m.stride);
      strides.insert(m.stride / data_width * width);
      for (const std::int64_t group : {16, 32, 64, 128}) {
        if (m.stride / data_width % group == 0) strides.insert(m.stride / data_width / group * width);
      }
    }
    for (const Mode& m : scale->modes) {
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
      out.push_back({FaultClass::wrong_stride,
                     "scales with a stride of " + std::to_string(stride / 8) + " bytes from " +
                         std::string(layout::name(axis)) + " to " + std::string(layout::name(axis)),
                     std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> resized(const Cache& cache) {
  std::vector<Variant> out;
  const auto packed_again = [](Plane& plane, Axis axis, std::int64_t extent) {
    std::vector<Mode> modes = by_stride(plane);
    bool changed = false;
    for (Mode& m : modes) {
      if (m.axis == axis && m.extent != extent && !changed) m.extent = extent, changed = true;
    }
    if (!changed) return false;
    std::int64_t pitch = layout::bits(plane.dtype);
    for (std::size_t i = modes.size(); i-- > 0;) {
      modes[i].stride = pitch;
      pitch *= modes[i].extent;
    }
    plane.modes = std::move(modes);
    return true;
  };
  for (const Axis axis : {Axis::channel, Axis::head, Axis::layer}) {
    std::set<std::int64_t> extents;
    for (const Plane& plane : cache.planes) {
      if (!is_data(plane)) continue;
      const layout::Box box = layout::domain(plane);
      const std::int64_t was = box.hi[axis] - box.lo[axis];
      for (const std::int64_t f : {2, 4, 8}) {
        extents.insert(was * f);
        if (was % f == 0) extents.insert(was / f);
      }
      for (const std::int64_t tile : {16, 32, 64, 128, 256}) {
        if (axis == Axis::channel && was > tile / 2) extents.insert((was + tile - 1) / tile * tile);
      }
    }
    {
      for (const std::int64_t now : extents) {
        bool changed = false, four_bits = false;
        std::int64_t was = 0;
        Cache variant = with(cache, Component::data, [&](Plane& plane) {
          const layout::Box box = layout::domain(plane);
          was = box.hi[axis] - box.lo[axis];
          if (now == 0 || now == was) return;
          four_bits = layout::bits(plane.dtype) == 4;
          changed = packed_again(plane, axis, now) || changed;
        });
        if (!changed || !fits(variant)) continue;
        const FaultClass fault_class = axis == Axis::head ? FaultClass::head_shard_mapping
                                       : axis == Axis::channel
                                           ? (four_bits ? FaultClass::packed_dim_misread : FaultClass::wrong_stride)
                                           : FaultClass::wrong_stride;
        const std::string words =
            std::to_string(was) + " " + std::string(layout::name(axis)) + "s taken for " + std::to_string(now);
        bool scales = false;
        Cache both = with(variant, Component::scale, [&](Plane& plane) {
          const layout::Box box = layout::domain(plane);
          const std::int64_t own = box.hi[axis] - box.lo[axis],
                             other = own * now / was;  // groups of channels, as many heads or layers
          if (other > 0 && own * now % was == 0) scales = packed_again(plane, axis, other) || scales;
        });
        out.push_back({fault_class, words, std::move(variant)});
        if (scales && fits(both)) out.push_back({fault_class, words + ", scales too", std::move(both)});
      }
    }
  }
  return out;
}

std::vector<Variant> recoded(const Cache& cache) {
  std::vector<Variant> out;
  const auto data = std::find_if(cache.planes.begin(), cache.planes.end(), is_data);
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
