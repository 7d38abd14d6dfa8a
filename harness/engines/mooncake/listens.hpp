// Probes an address like "127.0.0.1:15011" with a connection that it closes at once.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace kvcts::engines::mooncake {

/// Whether a process listens there. A stopped process still does: its kernel answers. Returns true for host names
/// without checking. Takes at most 1 s.
inline bool listens(const std::string& name) {
  const auto colon = name.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(name.c_str() + colon + 1)));
  if (inet_pton(AF_INET, name.substr(0, colon).c_str(), &to.sin_addr) != 1) return true;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const bool answered = connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  close(fd);
  return answered;
}

}  // namespace kvcts::engines::mooncake
