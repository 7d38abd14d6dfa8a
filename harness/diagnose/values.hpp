// Codes that were changed on their way: byte order, halves, number conversions. Read off every wrong code, where it lies.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "case/outcome.hpp"
#include "layout/dtype.hpp"

namespace kvcts::diagnose {

struct CodeChange {
  FaultClass fault_class{};
  std::string words;
  std::int64_t kept{0};  ///< words of content that it would have changed and that are right
};

/// What such a change leaves open, in words; "": nothing.
std::string right_ones(const CodeChange& cause);

class ChangedCodes {
 public:
  /// Of one memory's bytes, from a code's first one on. Both have one size; only wrong codes decide. `is_content`: whether
  /// something was to arrive at a byte.
  void look(layout::Dtype dtype, std::span<const std::uint8_t> expected, std::span<const std::uint8_t> found,
            const std::function<bool(std::size_t)>& is_content);
  /// One change that made every wrong code what it is. nullopt: none did, or there are too few wrong codes to tell.
  std::optional<CodeChange> cause() const;

 private:
  std::uint32_t possible_{~0u};               ///< a bit for each change
  std::uint32_t kinds_{0};                    ///< conversions that were seen
  std::int64_t wrong_{0};                     ///< bytes
  std::map<std::size_t, std::int64_t> kept_;  ///< by change
};

}  // namespace kvcts::diagnose
