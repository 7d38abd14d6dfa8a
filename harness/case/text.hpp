// Small words that several rooms print or throw. Header only, because it stands below every room.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace kvcts::text {

/// Throws std::runtime_error(what).
[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }

/// 1234567 -> "1,234,567".
template <std::integral Number>
std::string thousands(Number number) {
  std::string digits = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > sign + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

/// Two lower-case digits per byte, nothing between them.
inline std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t byte : bytes) {
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

}  // namespace kvcts::text
