// The one error type of catalogue and matrix: "file:line: expected ..., found ...; do ...".
#pragma once

#include <stdexcept>

namespace kvcts::catalogue {
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
}  // namespace kvcts::catalogue
