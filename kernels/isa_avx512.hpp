// The inner loops by hand for AVX-512 with VBMI, for cases that compilers handle poorly: rows whose length is not a whole
// number of vectors, rows shorter than a vector, and codes of many rows side by side.
#pragma once

#include "kernels/isa.hpp"

#if defined(__x86_64__)
namespace kvcts::kernels {

/// Members as in Isa. Needs avx512f, bw, dq, vl and vbmi.
struct Avx512 {
  template <LaneKind kind>
  static void rows(const RowKeys& keys, const RowShape& shape, std::uint8_t* out);
  template <LaneKind kind>
  static void columns(const RowKeys& keys, const ColumnShape& shape, std::uint8_t* out);
  static void keys(const std::uint64_t* states, std::size_t n, std::uint32_t* low, std::uint32_t* high);
  static std::size_t count(const std::uint8_t* a, const std::uint8_t* b, std::size_t n);
  static bool equal(const std::uint8_t* seen, const std::uint8_t* tile, const Pieces& pieces);
  static void stream(std::uint8_t* to, const std::uint8_t* from, std::size_t n);
  static void drain();
};

}  // namespace kvcts::kernels
#endif
