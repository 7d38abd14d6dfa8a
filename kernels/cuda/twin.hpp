// The device kernels on the CPU, by name: the same bodies, compiled by g++. Their results are evidence of the kind
// `modelled`: they show that the code is right, not that a device ran it.
#pragma once

#include <span>
#include <string_view>

#include "kernels/cuda/launch.hpp"

namespace kvcts::cuda {

/// How a launch ends.
enum class TwinEnding { done, illegal_address, assertion };

/// Runs one launch in the calling thread. kvcts_never_ends and kvcts_waits_for_flag do what their names say.
using TwinKernel = TwinEnding (*)(const void* args, u32 blocks);

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
