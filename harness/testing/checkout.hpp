// Where tests find what they are about. One source file has the paths of the machine; no other is compiled anew in another
// clone.
#pragma once

#include <string>

namespace kvcts::checkout {

std::string source();     ///< the folder with cases/ and golden/
std::string build();      ///< the folder with bin/ and lib/
std::string fake_cuda();  ///< the stand-in driver (harness/device/fake)

}  // namespace kvcts::checkout
