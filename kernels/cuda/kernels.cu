// The device kernels, with C names so that the driver API finds them: no CUDA runtime is linked. The headers named in
// kernel_list.hpp hold their bodies, shared with the CPU twin; the watchdog fixtures' bodies are here.
#if !defined(__CUDACC_RTC__)
#include <cassert>
#endif

#include "kernels/cuda/kernel_list.hpp"

namespace {

__device__ __forceinline__ unsigned long long now_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

}  // namespace

// At least four thread blocks fit on a multiprocessor: up to 64 registers per thread, and no spills to gain more threads.
#define KVCTS_DEVICE_KERNEL(name, Work)                                 \
  extern "C" __global__ void __launch_bounds__(kvcts::cuda::threads, 4) \
      name(const __grid_constant__ kvcts::cuda::Work::Args args) {      \
    kvcts::cuda::run_tiles<kvcts::cuda::Work>(args);                    \
  }
KVCTS_TILE_KERNELS(KVCTS_DEVICE_KERNEL)

// A bounded spin: read-before-ready made deterministic, and harmless if the flag never comes.
extern "C" __global__ void kvcts_spin(const __grid_constant__ kvcts::cuda::SpinArgs args) {
  const unsigned long long until = now_ns() + args.nanoseconds;
  while (now_ns() < until && (args.flag == nullptr || *args.flag == 0)) {
  }
  if (threadIdx.x == 0 && blockIdx.x == 0 && args.passed != nullptr) {
    __threadfence_system();
    kvcts::cuda::add_atomically(args.passed, 1);
  }
}

// Watchdog fixtures: each is the fault in its name.
extern "C" __global__ void kvcts_never_ends(const __grid_constant__ kvcts::cuda::HangArgs args) {
  for (unsigned i = 1; i != 0; i += 2) *args.word = i;
}

extern "C" __global__ void kvcts_waits_for_flag(const __grid_constant__ kvcts::cuda::HangArgs args) {
  while (*args.word == 0) {
  }
}

extern "C" __global__ void kvcts_illegal_address(const __grid_constant__ kvcts::cuda::HangArgs args) {
  *reinterpret_cast<volatile unsigned*>(args.address) = 1;
}

extern "C" __global__ void kvcts_device_assert(const __grid_constant__ kvcts::cuda::HangArgs args) {
#if defined(__CUDACC_RTC__)
  if (*args.word == 0) asm volatile("trap;");
#else
  assert(*args.word != 0 && "kvcts: this assertion fails on purpose");
#endif
}
