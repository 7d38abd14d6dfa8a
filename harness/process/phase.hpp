// What a worker is doing: the part of its status page that everybody names.
#pragma once

#include <cstdint>

namespace kvcts {

enum class Phase : std::uint8_t {
  resolve,
  allocate,
  generate,
  registration,
  plan,
  transfer,
  complete,
  read_back,
  compare,
  diagnose,
};
inline constexpr int phase_count = 10;

}  // namespace kvcts
