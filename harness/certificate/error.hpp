// What is wrong with a key, an envelope or a package, in one sentence for the user.
#pragma once

#include <stdexcept>

namespace kvcts::certificate {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace kvcts::certificate
