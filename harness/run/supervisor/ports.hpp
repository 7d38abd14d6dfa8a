// TCP ports on loopback for connector programs: jobs of a run reuse no port until all have been used.
#pragma once

#include <cstdint>
#include <vector>

namespace kvcts::supervisor {

class Ports {
 public:
  Ports();
  /// `count` ports that are currently unused. Throws std::runtime_error if there are not enough.
  std::vector<std::uint16_t> take(std::int64_t count);

 private:
  std::uint16_t next_;
};

}  // namespace kvcts::supervisor
