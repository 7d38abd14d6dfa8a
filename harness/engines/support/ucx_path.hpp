// Which path did the bytes take? Two independent witnesses:
//   - UCX's own protocol tables (UCX_PROTO_INFO, since 1.15), written to its log when an endpoint chooses: "zero-copy" by
//     "cma/memory", "tcp/lo";
//   - the kernel's counters of this process's TCP connections (tcp_path.hpp).
#pragma once

#include <string>

#include "engines/support/tcp_path.hpp"

namespace kvcts::engines {

/// The log of the UCX in this process, kept in memory.
class UcxLog {
 public:
  /// Sets UCX_PROTO_INFO and UCX_LOG_FILE. Construct it before UCX is loaded. If another plug-in part or the user has
  /// already set UCX_LOG_FILE, reads that file.
  UcxLog();
  ~UcxLog();
  UcxLog(const UcxLog&) = delete;
  UcxLog& operator=(const UcxLog&) = delete;

  struct Path {
    std::string transport;  ///< "cma/memory"; "" = not chosen yet
    std::string protocol;   ///< "zero-copy", "software emulation"
  };
  enum Verb { put, get, message };
  /// The latest choice for large puts, gets or active messages of host memory to another process.
  Path path(Verb verb);

 private:
  std::string read();
  int file_{-1};
  std::size_t parsed_{0};  ///< bytes of the log that put_ and get_ come from
  Path known_[3];
};

}  // namespace kvcts::engines
