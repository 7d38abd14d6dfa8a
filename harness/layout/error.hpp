// The one error type of the layout library: a sentence with what was expected, what was found and what to do.
#pragma once

#include <stdexcept>

namespace kvcts::layout {
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
}  // namespace kvcts::layout
