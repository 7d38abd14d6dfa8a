#include "layout/axis.hpp"

namespace kvcts::layout {

std::string_view name(Axis axis) {
  static constexpr std::array<std::string_view, axis_count> names{"layer", "kv", "block", "slot", "head", "channel"};
  return names[static_cast<std::size_t>(axis)];
}

std::optional<Axis> axis_from_letter(char c) {
  for (Axis axis : all_axes) {
    if (letter(axis) == c) return axis;
  }
  return std::nullopt;
}

}  // namespace kvcts::layout
