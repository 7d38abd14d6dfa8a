#include "engines/support/tcp_path.hpp"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>

namespace kvcts::engines {

TcpSockets tcp_sockets() {
  TcpSockets sockets;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return sockets;
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    tcp_info info{};
    struct stat about{};
    socklen_t bytes = sizeof info;
    if (fd <= 2 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || fstat(fd, &about) != 0) continue;
    sockets[about.st_ino] = {info.tcpi_bytes_sent, info.tcpi_bytes_received};
  }
  closedir(folder);
  return sockets;
}

TcpBytes tcp_bytes_since(const TcpSockets& before) {
  TcpBytes sum;
  for (const auto& [inode, now] : tcp_sockets()) {
    const auto known = before.find(inode);
    sum.sent += now.sent - (known != before.end() ? known->second.sent : 0);
    sum.received += now.received - (known != before.end() ? known->second.received : 0);
  }
  return sum;
}

}  // namespace kvcts::engines
