// How to build a kernel so that nvcc and g++ compile the same body. A kernel is a class:
//
//   struct Work {
//     using Args = ...;                                              // launch.hpp
//     struct Shared { ... };                                         // of one thread block, for one tile
//     struct Local { ... };                                          // of one thread, for the whole launch
//     static u64 tiles(const Args&);
//     static void load(const Args&, u64 tile, u32 thread, Shared&);  // all threads, then a barrier if Shared is not empty
//     static void work(const Args&, u64 tile, u32 thread, const Shared&, Local&);
//     static void finish(const Args&, Local&);                       // after the last tile
//   };
#pragma once

#include "kernels/cuda/launch.hpp"

#if !defined(__CUDACC__)
#include <vector>
#endif

namespace kvcts::cuda {

struct NoLocal {};

#if defined(__CUDACC__)
template <class Work>
__device__ __forceinline__ void run_tiles(const typename Work::Args& args) {
  __shared__ typename Work::Shared shared;
  typename Work::Local local;
  const u64 tiles = Work::tiles(args);
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    Work::load(args, tile, threadIdx.x, shared);
    if constexpr (!__is_empty(typename Work::Shared)) __syncthreads();
    Work::work(args, tile, threadIdx.x, shared, local);
    if constexpr (!__is_empty(typename Work::Shared)) __syncthreads();
  }
  Work::finish(args, local);
}
#else
/// The twin turns the work between two barriers into a loop over the threads.
template <class Work>
void run_tiles_on_cpu(const void* raw, u32 blocks) {
  const auto& args = *static_cast<const typename Work::Args*>(raw);
  const u64 tiles = Work::tiles(args);
  for (u32 block = 0; block < blocks; ++block) {
    typename Work::Shared shared{};
    std::vector<typename Work::Local> locals(threads);
    for (u64 tile = block; tile < tiles; tile += blocks) {
      for (u32 thread = 0; thread < threads; ++thread) Work::load(args, tile, thread, shared);
      for (u32 thread = 0; thread < threads; ++thread) Work::work(args, tile, thread, shared, locals[thread]);
    }
    for (auto& local : locals) Work::finish(args, local);
  }
}
#endif

}  // namespace kvcts::cuda
