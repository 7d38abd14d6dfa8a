#include "kernels/cuda/image.hpp"

#if defined(KVCTS_FATBIN)
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".global kvcts_device_image_begin\n.hidden kvcts_device_image_begin\n"
    ".global kvcts_device_image_end\n.hidden kvcts_device_image_end\n"
    "kvcts_device_image_begin:\n"
    ".incbin \"" KVCTS_FATBIN
    "\"\n"
    "kvcts_device_image_end:\n"
    ".popsection\n");
extern "C" const std::byte kvcts_device_image_begin[], kvcts_device_image_end[];
#endif

namespace kvcts::cuda {

std::span<const std::byte> device_image() {
#if defined(KVCTS_FATBIN)
  return {kvcts_device_image_begin, kvcts_device_image_end};
#else
  return {};
#endif
}

}  // namespace kvcts::cuda
