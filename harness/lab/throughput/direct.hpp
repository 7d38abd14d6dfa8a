// The least that a program has to do to move a list by an engine's own calls: what the transport ABI is held against. The
// target is the plug-in's, whose metadata says where its memory is; only the initiator goes without the ABI.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engines/transport/session.hpp"

namespace kvcts::throughput {

class Direct {
 public:
  virtual ~Direct() = default;
  /// Writes the whole list and waits until it is there.
  virtual void move() = 0;
};

/// `memory`: the initiator's; `metadata`: of the target's one region, from its plug-in; `list`: offsets of both.
struct Task {
  std::span<unsigned char> memory;
  std::string metadata;
  std::span<const transport::Descriptor> list;
};

/// The loop that this program was linked with: NIXL lives beside no other UCX. `there`: the target's memory, for loops that
/// copy themselves.
std::unique_ptr<Direct> direct(const Task& task, unsigned char* there);

}  // namespace kvcts::throughput
