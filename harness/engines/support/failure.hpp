// What engines throw internally; support/table.hpp turns it into a status and the text of last_error().
#pragma once

#include <cstdint>
#include <string>

#include "engines/transport/kvcts_transport.h"

namespace kvcts::engines {

struct Failure {
  std::int32_t status{KVCTS_OK};
  std::string text;
  std::int64_t native{0};  ///< the engine's own code
};

}  // namespace kvcts::engines
