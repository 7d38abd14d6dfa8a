#include "kernels/cuda/twin.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/cuda/kernel_list.hpp"

namespace kvcts::cuda {
namespace {

template <class Work>
TwinEnding tiled(const void* args, u32 blocks) {
  run_tiles_on_cpu<Work>(args, blocks);
  return TwinEnding::done;
}

/// Real devices burn power; a twin need not.
void breathe() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

TwinEnding spin(const void* raw, u32) {
  const auto& args = *static_cast<const SpinArgs*>(raw);
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(args.nanoseconds);
  while (std::chrono::steady_clock::now() < until && (args.flag == nullptr || *args.flag == 0)) breathe();
  if (args.passed != nullptr) add_atomically(args.passed, 1);
  return TwinEnding::done;
}

TwinEnding never_ends(const void* raw, u32) {
  const auto& args = *static_cast<const HangArgs*>(raw);
  for (u32 i = 1; i != 0; i += 2) {
    *args.word = i;
    breathe();
  }
  return TwinEnding::done;
}

TwinEnding waits_for_flag(const void* raw, u32) {
  const auto& args = *static_cast<const HangArgs*>(raw);
  while (*args.word == 0) breathe();
  return TwinEnding::done;
}

TwinEnding illegal_address(const void*, u32) { return TwinEnding::illegal_address; }

TwinEnding device_assert(const void* raw, u32) {
  return *static_cast<const HangArgs*>(raw)->word == 0 ? TwinEnding::assertion : TwinEnding::done;
}

#define KVCTS_TWIN(name, Work) {#name, sizeof(Work::Args), tiled<Work>},
constexpr Twin table[] = {
    KVCTS_TILE_KERNELS(KVCTS_TWIN)  //
    {"kvcts_spin", sizeof(SpinArgs), spin},
    {"kvcts_never_ends", sizeof(HangArgs), never_ends},
    {"kvcts_waits_for_flag", sizeof(HangArgs), waits_for_flag},
    {"kvcts_illegal_address", sizeof(HangArgs), illegal_address},
    {"kvcts_device_assert", sizeof(HangArgs), device_assert},
};

}  // namespace

std::span<const Twin> twins() { return table; }

const Twin* find_twin(std::string_view name) {
  const auto* found = std::find_if(std::begin(table), std::end(table), [&](const Twin& twin) { return twin.name == name; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace kvcts::cuda
