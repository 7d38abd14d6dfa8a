// The axes of the matrix, in id order: what can vary, its default, its values, and what it sets in a case.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "case/spec.hpp"

namespace kvcts::matrix {

using catalogue::Catalogue;
using catalogue::Error;

/// Ids use this order. To add an axis, add a line here and one in axes.cpp.
enum class AxisId : std::uint8_t {
  producer,
  consumer,
  dtype,
  geometry,
  pbs,
  cbs,
  ptp,
  ctp,
  connector,
  engine,
  op,
  ids,
  arch,
  misalign,
  content,
  seed,
};
inline constexpr int axis_count = 16;

struct Axis {
  AxisId id{};
  std::string_view name;
  std::string_view fallback;  ///< value that ids leave out; "" = always written
  std::string_view doc;
  bool open{false};  ///< takes any integer of [low, high], not a closed list
  std::int64_t low{0}, high{0};
  std::vector<std::string> (*values)(const Catalogue&){nullptr};  ///< closed list, or the usual values of an open axis
  void (*apply)(CaseSpec&, const std::string& value, const Catalogue&){nullptr};
  std::string (*of)(const CaseSpec&){nullptr};  ///< the same for a hand-written case; "" = it has none
};

const std::array<Axis, axis_count>& axes();
const Axis& axis(AxisId id);
/// nullptr when no axis has this name.
const Axis* find_axis(std::string_view name);
std::vector<std::string> axis_names();

/// Markdown table of the axes, for the reference page.
std::string axes_reference();

}  // namespace kvcts::matrix
