// What a connector program learns about a case: the suite's claims about its own side, never the truth.
#pragma once

#include <string>
#include <vector>

#include "case/case.hpp"

namespace kvcts::connector::program {

/// One allocation as a file that any process of this user can open and map.
struct MemoryMessage {
  std::string name, file;  ///< "consumer/g0/r0/kv.L3", "/proc/123/fd/7"
  std::int64_t offset{0};  ///< of the allocation's first byte in the file; not page-aligned
  std::int64_t bytes{0};
};

/// Arguments of `register`. `memory` in the order of regions(view, side).
nlohmann::json register_arguments(const ResolvedCase& view, Side side, const std::vector<MemoryMessage>& memory);

/// Arguments of `transfer`: requests with their blocks on both sides.
nlohmann::json transfer_arguments(const ResolvedCase& view, Side side);

}  // namespace kvcts::connector::program
