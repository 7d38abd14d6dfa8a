// TCP sockets between the hosts of a run, IPv4.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "process/unique_fd.hpp"

namespace kvcts::process {

/// Listens on a free port of all addresses. Throws std::system_error.
struct Listener {
  UniqueFd socket;
  std::uint16_t port{0};
};
Listener listen_anywhere();

/// Connects within `timeout_ms`; an empty one if that fails, with `why`.
UniqueFd connect_to(const std::string& address, std::uint16_t port, int timeout_ms, std::string& why);

/// Small frames go out at once.
void without_delay(int socket);

/// Addresses of this host that another one may reach, and last the one for a process that plays another host here.
std::vector<std::string> own_addresses();
/// The address of this end of a connection, and the interface that has an address ("eth0"; "" = none).
std::string own_address(int socket);
std::string interface_of(const std::string& address);

}  // namespace kvcts::process
