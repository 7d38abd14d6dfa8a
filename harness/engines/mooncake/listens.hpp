// A connection to an address like "127.0.0.1:15011", closed at once.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace kvcts::engines::mooncake {

/// Does anybody listen there? A process that stands still does: its kernel answers. A host's name is not asked: true. Takes
/// 1 s at most.
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
