// The one error type of the run store. what() is one sentence: what was expected, what was found, what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace kvcts::store {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The store does not hold what was written to it: the user's file is damaged, whenever that is detected.
struct Damaged : Error {
  using Error::Error;
};

/// The file system or the disk refused a write (full, quota, size limit). Committed results are safe; later ones are
/// still held in memory: free space and call flush() again.
struct DiskFull : Error {
  using Error::Error;
};

}  // namespace kvcts::store
