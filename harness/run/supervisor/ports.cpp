#include "run/supervisor/ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "process/unique_fd.hpp"

namespace kvcts::supervisor {

namespace {

// Below the range that the kernel assigns (32768 and up), so that no outgoing connection takes one meanwhile.
constexpr std::uint16_t first = 20000, last = 32000;

bool is_free(std::uint16_t port) {
  const process::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

// Parallel runs start at different places.
Ports::Ports() : next_(static_cast<std::uint16_t>(first + ::getpid() * 97 % (last - first))) {}

std::vector<std::uint16_t> Ports::take(std::int64_t count) {
  std::vector<std::uint16_t> ports;
  for (int tried = 0; static_cast<std::int64_t>(ports.size()) < count; ++tried) {
    if (tried > last - first) throw std::runtime_error("no free TCP port between 20000 and 32000 for a connector program");
    if (is_free(next_)) ports.push_back(next_);
    next_ = next_ >= last ? first : static_cast<std::uint16_t>(next_ + 1);
  }
  return ports;
}

}  // namespace kvcts::supervisor
