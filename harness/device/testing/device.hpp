// For tests: the device to run on. The stand-in driver, unless KVCTS_CUDA_DRIVER names a real one.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "device/gpu.hpp"
#include "testing/checkout.hpp"

namespace kvcts::device::testing {

[[maybe_unused]] inline const int stand_in = ::setenv("KVCTS_CUDA_DRIVER", checkout::fake_cuda().c_str(), 0);

inline const Driver& the_driver() {
  static std::string reason;
  static const Driver* found = driver(reason);
  if (found == nullptr) throw std::runtime_error(reason);
  return *found;
}

inline Gpu& gpu() {
  static Gpu* const one = new Gpu(the_driver());  // never destroyed: the driver may be unloaded first
  one->make_current();
  return *one;
}

}  // namespace kvcts::device::testing
