// Bytes of memory asked for ahead of their use.
#pragma once

#include <cstdint>

namespace kvcts::kernels {

/// Asks for the line of 64 bytes that `byte` lies in. Not __builtin_prefetch, where it is all that a loop does: GCC 12 holds
/// such a loop to be without effect, and leaves it out.
[[gnu::always_inline]] inline void fetch_line(const std::uint8_t& byte) {
#if defined(__x86_64__)
  asm volatile("prefetcht0 %0" ::"m"(byte));
#else
  __builtin_prefetch(&byte);
#endif
}

}  // namespace kvcts::kernels
