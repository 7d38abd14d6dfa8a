// The device kernels on the CPU: the same bodies, compiled by g++, by name. What they compute is evidence of the kind
// `modelled`: it shows that the code is right, not that a device ran it.
#pragma once

#include <span>
#include <string_view>

#include "kernels/cuda/launch.hpp"

namespace kvcts::cuda {

/// How a launch ends.
enum class Ending { done, illegal_address, assertion };

/// Runs one launch in the calling thread. kvcts_never_ends and kvcts_waits_for_flag do as they are called.
using TwinKernel = Ending (*)(const void* args, u32 blocks);

struct Twin {
  std::string_view name;
  std::size_t args_bytes;
  TwinKernel run;
};
/// All kernels of kernels.cu.
std::span<const Twin> twins();
/// nullptr: no such kernel.
const Twin* find_twin(std::string_view name);

}  // namespace kvcts::cuda
