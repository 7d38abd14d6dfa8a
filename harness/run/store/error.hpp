// The one error type of the run store. what() is one sentence: what was expected, what was found, what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace kvcts::store {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The store does not hold what was put into it: the user's file, whenever that is found.
struct Damaged : Error {
  using Error::Error;
};

/// The file system or the disk refused a write (full, quota, size limit). What was committed before is safe, what was
/// recorded since is still held in memory: free space and call flush() again.
struct DiskFull : Error {
  using Error::Error;
};

}  // namespace kvcts::store
