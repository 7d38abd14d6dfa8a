// The compiled device kernels: one fatbin with machine code for many architectures, inside this library.
#pragma once

#include <cstddef>
#include <span>

namespace kvcts::cuda {

/// The input of cuModuleLoadData. Empty in a build without nvcc.
std::span<const std::byte> device_image();

}  // namespace kvcts::cuda
