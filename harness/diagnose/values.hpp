// Codes that were changed on their way: byte order, halves, number conversions. Read off every wrong code, where it lies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "case/outcome.hpp"
#include "layout/dtype.hpp"

namespace kvcts::diagnose {

class ChangedCodes {
 public:
  /// Of one memory's bytes, from a code's first one on. Both have one size; only wrong codes count.
  void look(layout::Dtype dtype, std::span<const std::uint8_t> expected, std::span<const std::uint8_t> found);
  /// One change that made every wrong code what it is. nullopt: none did, or there are too few wrong codes to tell.
  std::optional<std::pair<FaultClass, std::string>> cause() const;

 private:
  std::uint32_t possible_{~0u};  ///< a bit for each change
  std::uint32_t kinds_{0};       ///< conversions that were seen
  std::int64_t wrong_{0};        ///< bytes
};

}  // namespace kvcts::diagnose
