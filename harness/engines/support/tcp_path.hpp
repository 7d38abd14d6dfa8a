// Which path did the bytes take? Reads the kernel's byte counters of this process's TCP connections (TCP_INFO),
// whoever wrote the bytes.
#pragma once

#include <cstdint>
#include <map>

namespace kvcts::engines {

struct TcpBytes {
  std::uint64_t sent{0}, received{0};
};
/// Bytes over each TCP socket that this process has open, by the socket's inode.
using TcpSockets = std::map<std::uint64_t, TcpBytes>;
TcpSockets tcp_sockets();
/// Bytes over the sockets that are open now, minus those counted in `before`. Sockets closed since then do not count.
TcpBytes tcp_bytes_since(const TcpSockets& before);

}  // namespace kvcts::engines
