// Functions that host loops and device kernels share: __host__ __device__ where nvcc reads them, plain functions elsewhere.
#pragma once

#if defined(__CUDACC__)
#define KVCTS_HD __host__ __device__
#else
#define KVCTS_HD
#endif
