// Every tiled kernel: its name and its class. kernels.cu and twin.cpp both expand this list.
#pragma once

#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/copies.hpp"
#include "kernels/cuda/ranges.hpp"
#include "kernels/cuda/rows.hpp"

#define KVCTS_TILE_KERNELS(KERNEL)            \
  KERNEL(kvcts_generate_rows, GenerateRows)   \
  KERNEL(kvcts_generate_codes, GenerateCodes) \
  KERNEL(kvcts_check_rows, CheckRows)         \
  KERNEL(kvcts_write_poison, WritePoison)     \
  KERNEL(kvcts_check_poison, CheckPoison)     \
  KERNEL(kvcts_compare, Compare)              \
  KERNEL(kvcts_digest, Digest)                \
  KERNEL(kvcts_read, ReadOnly)                \
  KERNEL(kvcts_relayout, Relayout)            \
  KERNEL(kvcts_scatter, Scatter)              \
  KERNEL(kvcts_gather, Gather)                \
  KERNEL(kvcts_convert, Convert)              \
  KERNEL(kvcts_quantise, Quantise)            \
  KERNEL(kvcts_dequantise, Dequantise)
