// For functions shared by host loops and device kernels: __host__ __device__ under nvcc, plain functions elsewhere.
#pragma once

#if defined(__CUDACC__)
#define KVCTS_HD __host__ __device__
#else
#define KVCTS_HD
#endif
