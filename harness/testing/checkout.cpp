#include "testing/checkout.hpp"

namespace kvcts::checkout {

std::string source() { return KVCTS_SOURCE_DIR; }
std::string build() { return KVCTS_BINARY_DIR; }
std::string fake_cuda() { return build() + "/lib/kvcts/testing/libkvcts_fake_cuda.so"; }

}  // namespace kvcts::checkout
