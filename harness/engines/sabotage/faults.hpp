// The ways in which an engine can be wrong, as rows: how a list changes before anything moves, how bytes change in
// transit, and what is written besides. Two plug-ins use them: saboteur (engine shm itself) and front (in front of
// any engine's plug-in). Options:
//   fault     a row; "none" (the control that must not be caught)
//   n         its amount: bytes, copies or bits, as the row defines; may be negative
//   pick      last | every: which moves a row about a tail or a length affects (default last)
//   to        next | half: which wrong region on the same side: the next one, or the one half a list further
//   dtype     of the elements, for rows that change numbers: bf16, fp16, fp32, e4m3fn, e5m2
//   delay_us  delay of late writes (default 60,000)
// A row leaves a list unchanged if it cannot break it (one copy to exchange, a shift that leaves the memory).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/support/table.hpp"

namespace kvcts::engines::sabotage {

/// Where a byte lies; the code that uses a row defines the meaning. Addresses within a region are contiguous.
using Address = std::uint64_t;

struct FaultMove {
  Address to{0}, from{0};
  std::uint64_t bytes{0};
};
using FaultMoves = std::vector<FaultMove>;

struct ByteRange {
  Address address{0};
  std::uint64_t bytes{0};
  bool holds(Address at) const { return at >= address && at - address < bytes; }
};

/// Bytes written in addition to the list.
struct ExtraWrite {
  Address to{0};
  std::vector<std::byte> bytes;
};
using ExtraWrites = std::vector<ExtraWrite>;

/// The bytes of both sides, for rows that read them before anything moves.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual std::vector<std::vector<std::byte>> read(std::span<const ByteRange> pieces) = 0;
};

/// What a row may read.
struct FaultJob {
  std::int64_t n{1};
  bool every{false}, half{false};
  std::string dtype;
  std::size_t request{0};                ///< number of requests that this connection prepared earlier
  std::vector<ByteRange> local, remote;  ///< registered here; the peer's. In order
  std::vector<std::byte> previous;       ///< what the previous request delivered, end to end
  PeerMemory* memory{nullptr};

  /// The region of an address, as its list and index; nullptr: it is in no region.
  std::pair<const std::vector<ByteRange>*, std::size_t> find(Address at) const;
  /// Whether a shifted range stays in its region.
  bool inside(Address at, std::int64_t shift, std::uint64_t bytes) const;
};

/// When bytes that did not move in time move after all: after delay_us, or in a call that ends something.
enum class Until : std::uint8_t { delay, release, remove_peer, deregister };

/// A row. Unset members do nothing.
struct Fault {
  std::string_view name;
  void (*edit)(FaultMoves&, const FaultJob&){nullptr};  ///< the list, before anything moves
  /// The delivered bytes, end to end.
  void (*change)(const FaultMoves&, std::span<std::byte>, const FaultJob&){nullptr};
  /// Extra writes once all bytes have moved; receives the delivered bytes.
  ExtraWrites (*after)(const FaultMoves&, std::span<const std::byte>, const FaultJob&){nullptr};
  bool late{false};           ///< `after` comes delay_us after completion was reported
  bool early{false};          ///< completion is reported first, everything moves later
  Until until{Until::delay};  ///< for `early`
  bool several{false};        ///< requests have at most n descriptors, so that several are in flight
  bool both_ways{false};      ///< needs an engine that reads and writes
};

std::span<const Fault> list_faults();
std::span<const Fault> byte_faults();
std::span<const Fault> time_faults();

/// How one engine is wrong, from its options.
struct InjectedFault {
  const Fault* fault{nullptr};  ///< never nullptr
  FaultJob job;
  std::chrono::microseconds delay{60'000};
};
/// Takes the options with names that begin with `prefix`. Throws Failure(KVCTS_E_INVALID).
InjectedFault take_wrong(const OpenArgs& args, const std::string& prefix = "");

/// The move that ends last; nullptr: the list is empty.
const FaultMove* last_of(const FaultMoves& moves);
std::uint64_t bytes_of(const FaultMoves& moves);

}  // namespace kvcts::engines::sabotage
