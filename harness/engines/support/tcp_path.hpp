// Which way did the bytes take? The kernel's counters of the TCP connections of this process (TCP_INFO): bytes that went
// over them, whoever wrote them.
#pragma once

#include <cstdint>
#include <map>

namespace kvcts::engines {

struct TcpBytes {
  std::uint64_t sent{0}, received{0};
};
/// What went over each TCP socket that this process has open now, by the socket's inode.
using TcpSockets = std::map<std::uint64_t, TcpBytes>;
TcpSockets tcp_sockets();
/// Bytes over the sockets that are open now, less what had gone over them `before`. Sockets that were closed since do not
/// count.
TcpBytes tcp_bytes_since(const TcpSockets& before);

}  // namespace kvcts::engines
