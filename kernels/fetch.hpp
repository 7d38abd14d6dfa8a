// Prefetches memory.
#pragma once

#include <cstdint>

namespace kvcts::kernels {

/// Prefetches the 64-byte line that holds `byte`. Avoids __builtin_prefetch: GCC 12 treats a loop of nothing else as having
/// no effect, and deletes it.
[[gnu::always_inline]] inline void fetch_line(const std::uint8_t& byte) {
#if defined(__x86_64__)
  asm volatile("prefetcht0 %0" ::"m"(byte));
#else
  __builtin_prefetch(&byte);
#endif
}

}  // namespace kvcts::kernels
