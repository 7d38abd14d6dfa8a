#include "process/remote/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>

namespace kvcts::process {

namespace {

std::string to_string(const in_addr& address) {
  char text[INET_ADDRSTRLEN];
  return ::inet_ntop(AF_INET, &address, text, sizeof text) != nullptr ? text : "";
}

void each_address(const std::function<void(const std::string& address, const ifaddrs& of)>& call) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) != 0)
      call(to_string(reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr), *one);
  ::freeifaddrs(all);
}

}  // namespace

Listener listen_anywhere() {
  Listener out{UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), 0};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(out.socket.get(), any, size) != 0 || ::listen(out.socket.get(), 16) != 0 ||
      ::getsockname(out.socket.get(), any, &size) != 0)
    throw std::system_error(errno, std::generic_category(), "listening for the other host");
  out.port = ntohs(address.sin_port);
  return out;
}

UniqueFd connect_to(const std::string& text, std::uint16_t port, int timeout_ms, std::string& why) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
    why = "no IPv4 address";
    return {};
  }
  int error = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd entry{socket.get(), POLLOUT, 0};
    socklen_t size = sizeof error;
    if (::poll(&entry, 1, timeout_ms) <= 0)
      error = ETIMEDOUT;
    else
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return socket;
  why = std::strerror(error);
  return {};
}

void without_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  each_address([&](const std::string& address, const ifaddrs& of) {
    if ((of.ifa_flags & IFF_LOOPBACK) == 0) out.push_back(address);
  });
  out.emplace_back("127.0.0.1");
  return out;
}

std::string own_address(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? to_string(address.sin_addr) : "";
}

std::string interface_of(const std::string& address) {
  std::string out;
  each_address([&](const std::string& one, const ifaddrs& of) {
    if (one == address) out = of.ifa_name;
  });
  return out;
}

}  // namespace kvcts::process
