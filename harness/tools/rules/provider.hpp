// Checks that a memory provider obeys its ABI (transport/kvcts_memory.h) before it is used for regions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engines/transport/memory.hpp"

namespace kvcts::rules {

/// One requirement. `holds` returns "" or what was seen instead; TransportErrors that escape it count as seen, too.
/// Each runs in a separate process.
struct ProviderTest {
  std::string id, title;
  std::function<std::string(transport::MemoryPool&)> holds;
};
const std::vector<ProviderTest>& provider_tests();

}  // namespace kvcts::rules
