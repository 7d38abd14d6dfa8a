// 64-bit arithmetic that throws instead of wrapping.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "layout/error.hpp"

namespace kvcts::layout::checked {

[[noreturn]] inline void overflow(std::string_view op, std::int64_t a, std::int64_t b) {
  throw Error("64-bit overflow: " + std::to_string(a) + ' ' + std::string(op) + ' ' + std::to_string(b) +
              " does not fit; use smaller extents, strides or offsets");
}

inline std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) overflow("+", a, b);
  return r;
}

inline std::int64_t sub(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_sub_overflow(a, b, &r)) overflow("-", a, b);
  return r;
}

inline std::int64_t mul(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) overflow("*", a, b);
  return r;
}

/// Quotient rounded down, remainder in [0, b). b > 0.
inline std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
/// The multiple of `unit` at or below `a`. unit > 0.
inline std::int64_t floor_to(std::int64_t a, std::int64_t unit) { return floor_div(a, unit) * unit; }
/// Quotient rounded up. b > 0.
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

}  // namespace kvcts::layout::checked
