#include "scene/numbers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace kvcts::scenario {

using layout::Dtype;

namespace {

const float not_a_number = std::bit_cast<float>(0x7fffffffu);
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Format {
  int exponent{0}, mantissa{0}, bias{0};
};

Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
      return {5, 10, 15};
    case Dtype::bf16:
      return {8, 7, 127};
    case Dtype::e4m3fn:
      return {4, 3, 7};
    case Dtype::e5m2:
      return {5, 2, 15};
    case Dtype::e4m3fnuz:
      return {4, 3, 8};
    case Dtype::e5m2fnuz:
      return {5, 2, 16};
    case Dtype::e2m1:
      return {2, 1, 1};
    default:
      return {8, 23, 127};
  }
}

bool is_fnuz(Dtype dtype) { return dtype == Dtype::e4m3fnuz || dtype == Dtype::e5m2fnuz; }

/// Codes without a sign (integers: with it) and what they mean, ascending; finite numbers only.
using Table = std::vector<std::pair<float, std::uint32_t>>;

Table make_table(Dtype dtype) {
  Table table;
  const int width = layout::bits(dtype);
  const bool is_signed_float = dtype != Dtype::e8m0 && dtype != Dtype::int8 && dtype != Dtype::uint8 && dtype != Dtype::int4;
  const std::uint32_t end = 1u << (is_signed_float ? width - 1 : width);
  for (std::uint32_t code = 0; code < end; ++code) {
    const float number = number_of(dtype, code);
    if (std::isfinite(number)) table.emplace_back(number, code);
  }
  std::sort(table.begin(), table.end());
  return table;
}

const Table& table_of(Dtype dtype) {
  static const auto all = [] {
    std::array<Table, 12> out;
    for (Dtype d : layout::all_dtypes()) {
      if (d != Dtype::fp32) out[static_cast<std::size_t>(d)] = make_table(d);
    }
    return out;
  }();
  return all[static_cast<std::size_t>(dtype)];
}

}  // namespace

float number_of(Dtype dtype, std::uint32_t code) {
  switch (dtype) {
    case Dtype::fp32: {
      const float number = std::bit_cast<float>(code);
      return std::isnan(number) ? not_a_number : number;
    }
    case Dtype::uint8:
      return static_cast<float>(code);
    case Dtype::int8:
      return static_cast<float>(code < 128 ? static_cast<int>(code) : static_cast<int>(code) - 256);
    case Dtype::int4:
      return static_cast<float>(code < 8 ? static_cast<int>(code) : static_cast<int>(code) - 16);
    case Dtype::e8m0:
      return code == 255 ? not_a_number : std::ldexp(1.0f, static_cast<int>(code) - 127);
    default:
      break;
  }
  const Format f = format_of(dtype);
  const std::uint32_t mantissa = code & ((1u << f.mantissa) - 1);
  const std::uint32_t exponent = (code >> f.mantissa) & ((1u << f.exponent) - 1);
  const bool negative = (code >> (f.mantissa + f.exponent)) & 1u;
  const bool top = exponent == (1u << f.exponent) - 1;
  if (is_fnuz(dtype)) {
    if (code == 0x80) return not_a_number;
  } else if (dtype == Dtype::e4m3fn) {
    if (top && mantissa == 7) return not_a_number;
  } else if (dtype != Dtype::e2m1 && top) {
    if (mantissa != 0) return not_a_number;
    return negative ? -infinity : infinity;
  }
  const auto significand = static_cast<float>(exponent == 0 ? mantissa : mantissa + (1u << f.mantissa));
  const float magnitude = std::ldexp(significand, std::max(static_cast<int>(exponent), 1) - f.bias - f.mantissa);
  return negative ? -magnitude : magnitude;
}

std::uint32_t nearest_code(Dtype dtype, float number) {
  if (dtype == Dtype::fp32) return std::bit_cast<std::uint32_t>(number);
  const bool integer = dtype == Dtype::int8 || dtype == Dtype::uint8 || dtype == Dtype::int4;
  const float wanted = integer ? number : std::fabs(number);
  const Table& table = table_of(dtype);
  auto above = std::lower_bound(table.begin(), table.end(), std::pair{wanted, 0u});
  if (above == table.end()) --above;  // saturates
  std::uint32_t code = above->second;
  if (above != table.begin()) {
    const auto below = std::prev(above);
    // Exact in double: both neighbours and the number are floats close to each other.
    const double up = double{above->first} - wanted, down = double{wanted} - below->first;
    // e8m0 has no significand bit that could be even: 1.5 rounds to 2.
    if (down < up || (down == up && below->second % 2 == 0 && dtype != Dtype::e8m0)) code = below->second;
  }
  if (integer || dtype == Dtype::e8m0 || !std::signbit(number)) return code;
  if (is_fnuz(dtype) && code == 0) return code;
  return code | 1u << (layout::bits(dtype) - 1);
}

}  // namespace kvcts::scenario
