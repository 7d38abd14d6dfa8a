// What a worker is doing: the phase on its status page.
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
