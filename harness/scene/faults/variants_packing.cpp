// Other ways to read the same bytes: misread row widths or scale orders.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "scene/faults/variants.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::Cache;
using layout::Component;
using layout::Mode;
using layout::Plane;

std::int64_t row_bits(const Plane& plane) {
  std::int64_t out = layout::bits(plane.dtype);
  for (const Mode& m : plane.modes) {
    if (m.axis == Axis::channel) out *= m.extent;
  }
  return out;
}

namespace {

/// The step from one row to the next: the smallest stride that is not a channel's.
std::int64_t pitch_of(const Plane& plane) {
  std::int64_t out = 0;
  for (const Mode& m : plane.modes) {
    if (m.axis != Axis::channel && m.extent > 1 && (out == 0 || m.stride < out)) out = m.stride;
  }
  return out;
}

}  // namespace

std::vector<Variant> repitched(const Cache& cache) {
  std::vector<Variant> out;
  const auto data =
      std::find_if(cache.planes.begin(), cache.planes.end(), [](const Plane& p) { return p.component == Component::data; });
  if (data == cache.planes.end()) return out;
  const std::int64_t was = pitch_of(*data), row = row_bits(*data);
  if (was < row) return out;  // rows are not the innermost
  std::set<std::int64_t> pitches{row, row * 2, row * 4};
  if (layout::bits(data->dtype) == 4) pitches.insert(row / 2);
  for (const Plane& other : cache.planes) {
    if (other.component == Component::scale) pitches.insert(row + row_bits(other)), pitches.insert(was + row_bits(other));
  }
  for (const std::int64_t tile : {16, 32, 64, 128, 256}) {
    for (const std::int64_t unit : {std::int64_t{8}, static_cast<std::int64_t>(layout::bits(data->dtype))})
      pitches.insert((row + tile * unit - 1) / (tile * unit) * (tile * unit));
  }
  const bool four_bits = layout::bits(data->dtype) == 4;
  for (const std::int64_t pitch : pitches) {
    if (pitch == was || pitch == 0) continue;
    for (const bool all : {false, true}) {
      Cache variant = cache;
      bool scales = false, exact = true;
      for (Plane& plane : variant.planes) {
        const bool inline_scales =
            plane.component != Component::data && plane.allocation == data->allocation && pitch_of(plane) == was;
        if (plane.component != Component::data && !(all && inline_scales)) continue;
        scales = scales || inline_scales;
        for (Mode& m : plane.modes) {
          if (m.axis == Axis::channel || m.extent == 1) continue;
          exact = exact && m.stride * pitch % was == 0;
          m.stride = m.stride * pitch / was;
        }
        if (plane.modes.size() > 0 && plane.offset >= was)
          plane.offset = plane.offset / was * pitch + plane.offset % was;  // V after K
      }
      if (!exact || !fits(variant) || (all && !scales)) continue;
      const bool packed = four_bits && (pitch == was * 2 || pitch * 2 == was);
      out.push_back({packed ? FaultClass::packed_dim_misread : FaultClass::wrong_stride,
                     "rows of " + std::to_string(pitch / 8) + " bytes instead of " + std::to_string(was / 8) +
                         (all ? ", scales too" : ""),
                     std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> relaid(const Cache& cache) {
  std::vector<Variant> out;
  const auto of = [&](Component component) {
    return std::find_if(cache.planes.begin(), cache.planes.end(), [&](const Plane& p) { return p.component == component; });
  };
  const auto data = of(Component::data), scale = of(Component::scale);
  if (data == cache.planes.end() || scale == cache.planes.end() || data->allocation != scale->allocation ||
      cache.planes.size() != 2)
    return out;
  // The inside of a block, innermost first; everything outside stays.
  std::vector<Mode> rows;
  std::int64_t block = 0;
  for (const Mode& m : data->modes) {
    if (m.axis == Axis::block) block = std::max(block, m.stride);
  }
  for (const Mode& m : data->modes) {
    if (m.axis != Axis::channel && (block == 0 || m.stride < block)) rows.push_back(m);
  }
  std::sort(rows.begin(), rows.end(), [](const Mode& a, const Mode& b) { return a.stride < b.stride; });
  const std::int64_t width = row_bits(*data), scales = row_bits(*scale);
  // `apart`: how many of the rows' axes, from the inside, are adjacent before scales come.
  for (std::size_t apart = 0; apart <= rows.size(); ++apart) {
    Cache variant = cache;
    Plane& d = variant.planes[static_cast<std::size_t>(data - cache.planes.begin())];
    Plane& s = variant.planes[static_cast<std::size_t>(scale - cache.planes.begin())];
    std::int64_t n = 1, pitch = 0;
    const auto stride = [](Plane& plane, Axis axis, std::int64_t now) {
      for (Mode& m : plane.modes) {
        if (m.axis == axis && m.extent > 1) m.stride = now;
      }
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i < apart) {
        stride(d, rows[i].axis, width * n), stride(s, rows[i].axis, scales * n);
        n *= rows[i].extent;
        continue;
      }
      if (pitch == 0) pitch = (width + scales) * n;
      stride(d, rows[i].axis, pitch), stride(s, rows[i].axis, pitch);
      pitch *= rows[i].extent;
    }
    s.offset = d.offset + width * n;
    for (const Mode& m : data->modes) {
      if (block != 0 && m.stride >= block && m.axis != Axis::channel) stride(s, m.axis, m.stride);
    }
    if (variant == cache || !fits(variant)) continue;
    out.push_back({FaultClass::scale_misplaced,
                   std::string("scales taken to lie after ") +
                       (apart == 0             ? "each row"
                        : apart == rows.size() ? "all rows of a block"
                                               : "the rows of a " + std::string(layout::name(rows[apart].axis))),
                   std::move(variant)});
  }
  return out;
}

std::vector<Variant> exchanged_parts(const Cache& cache) {
  std::vector<Variant> out;
  for (std::size_t i = 0; i < cache.planes.size(); ++i) {
    for (std::size_t j = 0; j < cache.planes.size(); ++j) {
      const Plane &first = cache.planes[i], &second = cache.planes[j];
      if (first.allocation != second.allocation || first.offset >= second.offset) continue;
      // The common part lies outside; the rest is the part.
      const auto span = [](const Plane& plane, const Plane& other) {
        std::int64_t bits = layout::bits(plane.dtype);
        for (const Mode& m : plane.modes) {
          if (m.axis == Axis::channel || std::find(other.modes.begin(), other.modes.end(), m) == other.modes.end())
            bits += (m.extent - 1) * m.stride;
        }
        return bits;
      };
      if (first.origin[Axis::layer] != second.origin[Axis::layer] || first.offset + span(first, second) != second.offset)
        continue;
      Cache variant = cache;
      variant.planes[j].offset = first.offset;
      variant.planes[i].offset = first.offset + span(second, first);
      if (!fits(variant)) continue;
      const bool scales = first.component != Component::data || second.component != Component::data;
      const bool kv = first.origin[Axis::kv] != second.origin[Axis::kv];
      const auto part = [](const Plane& plane) {
        const layout::Box box = layout::domain(plane);
        return (plane.component == Component::data ? "channels " : "scales ") + std::to_string(box.lo[Axis::channel]) +
               ".." + std::to_string(box.hi[Axis::channel] - 1);
      };
      out.push_back({scales ? FaultClass::scale_misplaced
                     : kv   ? FaultClass::kv_split_vs_interleaved
                            : FaultClass::wrong_stride,
                     part(second) + " taken to lie in front of " + part(first), std::move(variant)});
    }
  }
  return out;
}

std::vector<Variant> swizzled(const Cache& cache) {
  std::vector<Variant> out;
  // The slots and groups of a plane, as one stretch to lay out anew; both whole.
  const auto laid_out = [](const Plane& plane, const std::string& how) -> std::optional<Plane> {
    std::int64_t slots = 1, groups = 1, smallest = 0;
    Plane now = plane;
    now.modes.clear();
    for (const Mode& m : plane.modes) {
      if (m.axis != Axis::slot && m.axis != Axis::channel) {
        now.modes.push_back(m);
        smallest = smallest == 0 ? m.stride : std::min(smallest, m.stride);
        continue;
      }
      (m.axis == Axis::slot ? slots : groups) *= m.extent;
    }
    const std::int64_t width = layout::bits(plane.dtype);
    if (smallest != 0 && smallest < slots * groups * width) return std::nullopt;  // something else lies between
    if (how == "linear") {
      now.modes.push_back({Axis::slot, slots, groups * width, 1});
      now.modes.push_back({Axis::channel, groups, width, 1});
    } else if (how == "groups before slots") {
      now.modes.push_back({Axis::channel, groups, slots * width, 1});
      now.modes.push_back({Axis::slot, slots, width, 1});
    } else if (slots % 4 == 0) {
      now.modes.push_back({Axis::slot, slots / 4, 4 * groups * width, 4});
      now.modes.push_back({Axis::channel, groups, 4 * width, 1});
      now.modes.push_back({Axis::slot, 4, width, 1});
    } else {
      return std::nullopt;
    }
    return now;
  };
  for (const char* how : {"linear", "interleaved over four slots", "groups before slots"}) {
    for (const int which : {0, 1, 2}) {  // all of them, K's, V's
      Cache variant = cache;
      bool changed = false, good = true;
      for (Plane& plane : variant.planes) {
        if (plane.component != Component::scale) continue;
        const layout::Box box = layout::domain(plane);
        if (which > 0 && (box.lo[Axis::kv] != which - 1 || box.hi[Axis::kv] != which)) continue;
        const auto now = laid_out(plane, how);
        good = good && now.has_value();
        if (now && !(*now == plane)) plane = *now, changed = true;
      }
      if (changed && good && fits(variant))
        out.push_back({FaultClass::scale_swizzle,
                       std::string("scales taken for ") + how +
                           (which == 0   ? ""
                            : which == 1 ? ", those of K"
                                         : ", those of V"),
                       std::move(variant)});
    }
  }
  return out;
}

}  // namespace kvcts::scenario
