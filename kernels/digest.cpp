#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // XXH3_64bits with AVX2 or AVX-512 where the CPU has them; the value is the same
#endif

#include "kernels/generate.hpp"

namespace kvcts::kernels {

std::uint64_t digest(std::span<const std::uint8_t> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace kvcts::kernels
