// The minimum that a program must do to move a list with an engine's own calls: the baseline for the transport ABI.
// The target is the plug-in's, whose metadata locates its memory; only the initiator bypasses the ABI.
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
  /// Writes the whole list and waits until it has arrived.
  virtual void move() = 0;
};

/// `memory`: the initiator's; `metadata`: the plug-in's, for the target's one region; `list`: offsets on both sides.
struct Task {
  std::span<unsigned char> memory;
  std::string metadata;
  std::span<const transport::Descriptor> list;
};

/// The loop that this program was linked with: NIXL cannot share a process with another UCX. `there`: the target's
/// memory, for loops that copy themselves.
std::unique_ptr<Direct> direct(const Task& task, unsigned char* there);

}  // namespace kvcts::throughput
