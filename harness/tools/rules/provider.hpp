// A memory provider is held to its ABI (transport/kvcts_memory.h) before regions are made of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engines/transport/memory.hpp"

namespace kvcts::rules {

/// One demand. `holds` returns "" or what was seen instead; TransportErrors that it lets through are seen, too. Each is
/// asked in a process of its own.
struct ProviderTest {
  std::string id, title;
  std::function<std::string(transport::MemoryPool&)> holds;
};
const std::vector<ProviderTest>& provider_tests();

}  // namespace kvcts::rules
