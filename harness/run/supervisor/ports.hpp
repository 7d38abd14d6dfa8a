// TCP ports on loopback for connector programs: no two jobs of a run get the same ones until all were used.
#pragma once

#include <cstdint>
#include <vector>

namespace kvcts::supervisor {

class Ports {
 public:
  Ports();
  /// `count` ports that nobody listens on at this moment. Throws std::runtime_error when there are none.
  std::vector<std::uint16_t> take(std::int64_t count);

 private:
  std::uint16_t next_;
};

}  // namespace kvcts::supervisor
