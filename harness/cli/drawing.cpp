#include "cli/drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace kvcts::cli {
namespace {

std::string bytes_text(std::int64_t bits) {
  if (bits % 8 == 0) return fmt::format("{} byte{}", bits / 8, bits == 8 ? "" : "s");
  return fmt::format("{} bits", bits);
}

/// A run of elements in which one axis counts up by one and the others stand still.
struct Row {
  std::int64_t begin{0}, end{0};  // bits
  std::optional<layout::Element> first, last;
  std::optional<layout::Axis> moving;
};

/// The only axis in which the coordinates differ, if it steps by one.
std::optional<layout::Axis> step_axis(const layout::Coord& a, const layout::Coord& b) {
  std::optional<layout::Axis> moved;
  for (const layout::Axis axis : layout::all_axes) {
    if (a[axis] == b[axis]) continue;
    if (moved || b[axis] != a[axis] + 1) return std::nullopt;
    moved = axis;
  }
  return moved;
}

bool extends(const Row& row, const std::optional<layout::Element>& next) {
  if (!row.last || !next) return !row.last && !next;
  if (row.last->plane != next->plane) return false;
  const auto axis = step_axis(row.last->coord, next->coord);
  return axis && (!row.moving || row.moving == axis);
}

std::string to_string(const layout::Cache& cache, const Row& row) {
  if (!row.first) return "padding";
  const layout::Plane& plane = cache.planes[static_cast<std::size_t>(row.first->plane)];
  std::string text = plane.component == layout::Component::data ? "" : fmt::format("{} ", name(plane.component));
  for (const layout::Axis axis : layout::all_axes) {
    const std::int64_t at = row.first->coord[axis];
    if (axis == layout::Axis::kv && domain(plane).hi[axis] <= 2) {
      text += at == 0 ? "K " : "V ";
      continue;
    }
    text += row.moving == axis ? fmt::format("{} {}..{} ", name(axis), at, row.last->coord[axis])
                               : fmt::format("{} {} ", name(axis), at);
  }
  text.pop_back();
  return text;
}

}  // namespace

std::string draw_modes(const layout::Plane& plane) {
  std::string text;
  std::string indent;
  for (const layout::Mode& mode : plane.modes) {
    text += fmt::format("{:<28} every {}{}\n", fmt::format("{}{} x {}", indent, name(mode.axis), mode.extent),
                        bytes_text(mode.stride), mode.step == 1 ? "" : fmt::format(", counting by {}", mode.step));
    indent += "  ";
  }
  text += fmt::format("{}{} of {}\n", indent, bytes_text(bits(plane.dtype)), name(plane.dtype));
  return text;
}

std::string draw_bytes(const layout::Cache& cache, int allocation, int rows) {
  const std::int64_t end = cache.allocations[static_cast<std::size_t>(allocation)].bytes * 8;
  int narrowest = 8;
  for (const layout::Plane& plane : cache.planes)
    if (plane.allocation == allocation) narrowest = std::min(narrowest, bits(plane.dtype));
  std::vector<Row> found;
  std::int64_t bit = 0;
  while (bit < end && static_cast<int>(found.size()) <= rows) {
    std::optional<layout::Element> here;
    if (auto elements = inverse(cache, allocation, bit); !elements.empty()) here = elements.front();
    const std::int64_t width = here ? bits(cache.planes[static_cast<std::size_t>(here->plane)].dtype) : narrowest;
    if (!found.empty() && extends(found.back(), here)) {
      if (here && !found.back().moving) found.back().moving = step_axis(found.back().last->coord, here->coord);
      found.back().last = here;
      found.back().end = bit + width;
    } else {
      found.push_back({bit, bit + width, here, here, std::nullopt});
    }
    bit += width;
  }
  std::string text;
  for (int i = 0; i < std::min<int>(rows, static_cast<int>(found.size())); ++i) {
    const Row& row = found[static_cast<std::size_t>(i)];
    text += fmt::format("{:>10} .. {:<10} {}\n", row.begin / 8, (row.end + 7) / 8, to_string(cache, row));
  }
  if (static_cast<int>(found.size()) > rows)
    text += fmt::format("{:>10} .. {:<10} and so on\n", found.back().begin / 8, end / 8);
  return text;
}

}  // namespace kvcts::cli
