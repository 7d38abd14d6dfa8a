// The compiled device kernels: one fatbin with machine code for many architectures, inside of this library.
#pragma once

#include <cstddef>
#include <span>

namespace kvcts::cuda {

/// What cuModuleLoadData takes. Empty in a build without nvcc.
std::span<const std::byte> device_image();

}  // namespace kvcts::cuda
