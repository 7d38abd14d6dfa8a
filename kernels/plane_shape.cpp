#include "kernels/plane_shape.hpp"

#include <algorithm>

namespace kvcts::kernels {
namespace {

using layout::Axis;

/// Channels that are consecutive in coordinates and in memory, then such runs at equal distances.
std::vector<Runs> find_runs(const AxisTable& channels, int width) {
  std::vector<Runs> single;
  for (const AxisEntry& entry : channels.entries()) {
    if (!single.empty()) {
      Runs& last = single.back();
      if (entry.coord == last.first + last.channels && entry.bit == last.bit + last.channels * width) {
        ++last.channels;
        continue;
      }
    }
    single.push_back({entry.coord, 1, entry.bit, 0, 1});
  }
  std::vector<Runs> out;
  for (const Runs& run : single) {
    if (!out.empty()) {
      Runs& last = out.back();
      const std::int64_t stride = last.count == 1 ? run.bit - last.bit : last.stride;
      if (run.channels == last.channels && run.first == last.first + last.count * last.channels &&
          run.bit == last.bit + last.count * stride) {
        last.stride = stride;
        ++last.count;
        continue;
      }
    }
    out.push_back(run);
  }
  return out;
}

bool nested(const layout::Plane& plane, int width) {
  std::vector<std::pair<std::int64_t, std::int64_t>> modes;  // distance, extent
  for (const layout::Mode& mode : plane.modes) {
    if (mode.extent > 1) modes.emplace_back(mode.stride < 0 ? -mode.stride : mode.stride, mode.extent);
  }
  std::sort(modes.begin(), modes.end());
  std::int64_t reach = width;
  for (const auto& [distance, extent] : modes) {
    if (distance < reach) return false;
    reach += distance * (extent - 1);
  }
  return true;
}

}  // namespace

PlaneShape::PlaneShape(const layout::Plane& plane, const AxisTable& channels, int width)
    : runs(find_runs(channels, width)), one_to_one(nested(plane, width)) {
  first = channels.entries().front().coord;
  last = channels.entries().back().coord + 1;

  const auto whole = [](std::int64_t bits) { return bits % 8 == 0; };
  bool apart = whole(plane.offset);  // every axis but channel and the innermost steps in whole bytes
  bool side_by_side = true;          // adjacent rows end at whole bytes
  for (const layout::Mode& mode : plane.modes) {
    if (mode.axis == Axis::channel || mode.extent == 1) continue;
    if (mode.stride == width && width < 8) {
      side_by_side = side_by_side && whole(mode.extent * width);
    } else {
      side_by_side = side_by_side && whole(mode.stride);
    }
    apart = apart && whole(mode.stride);
  }

  bool words = apart, single = whole(plane.offset) && side_by_side, bytes = apart;
  for (const Runs& run : runs) {
    const bool places = whole(run.bit) && whole(run.stride);
    const bool whole_runs = whole(run.channels * width) && whole(run.first * width);
    words =
        words && places && whole_runs && run.first * width % 32 == 0 && (run.count == 1 || run.channels * width % 32 == 0);
    single = single && places && run.channels == 1;
    bytes = bytes && places && whole_runs;
  }
  const bool dense = last - first <= 2 * static_cast<std::int64_t>(channels.entries().size()) + 64;
  const bool short_codes = runs.front().channels * width < 32;
  if (words && !short_codes) {
    way = Way::rows;
  } else if (single && (width < 32 || runs.front().count > 1)) {
    way = Way::columns;
  } else if (words) {
    way = Way::rows;
  } else if (bytes && dense) {
    way = Way::buffered;
  }
}

}  // namespace kvcts::kernels
