// Declarations that nvcc predefines and g++ lacks: enough for page.cuh's host side. None of them is called.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

inline const uint3 threadIdx{}, blockIdx{};
inline const dim3 blockDim, gridDim;
template <class T>
T __ldg(const T* at) {
  return *at;
}
inline unsigned __byte_perm(unsigned, unsigned, unsigned) { return 0; }
inline float __frcp_rn(float x) { return 1 / x; }
using std::max;
using std::min;
