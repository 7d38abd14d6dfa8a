// The ways in which an engine can be wrong, as rows: what becomes of a list before anything moves, of bytes on their way,
// and what is written besides. Two plug-ins are wrong by them: saboteur (engine shm, by itself) and front (in front of the
// plug-in of any engine). Options:
//   fault     a row; "none" (the control that must not be caught)
//   n         its amount: bytes, copies or bits, as the row says; may be negative
//   pick      last | every: which moves a row about a tail or a length is about (default last)
//   to        next | half: how far a wrong region is off, in regions of the same side: the next one, or half of the list on
//   dtype     of the elements, for rows that change numbers: bf16, fp16, fp32, e4m3fn, e5m2
//   delay_us  of what comes late (default 60,000)
// A row that cannot be wrong with a list (one copy to exchange, a shift that leaves the memory) leaves it as it is.
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

/// Where a byte lies, to the rows: the user of a row says what the numbers mean. Those of one region follow each other.
using Address = std::uint64_t;

struct Move {
  Address to{0}, from{0};
  std::uint64_t bytes{0};
};
using Moves = std::vector<Move>;

struct Extent {
  Address address{0};
  std::uint64_t bytes{0};
  bool holds(Address at) const { return at >= address && at - address < bytes; }
};

/// Bytes that are written besides the list.
struct Write {
  Address to{0};
  std::vector<std::byte> bytes;
};
using Writes = std::vector<Write>;

/// The bytes of both sides, for rows that look before anything moves.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::vector<std::vector<std::byte>> read(std::span<const Extent> pieces) = 0;
};

/// What a row may look at.
struct Job {
  std::int64_t n{1};
  bool every{false}, half{false};
  std::string dtype;
  std::size_t request{0};             ///< requests that this connection has prepared before
  std::vector<Extent> local, remote;  ///< registered here; of the peer. In order
  std::vector<std::byte> previous;    ///< what the request before delivered, end to end
  Memory* memory{nullptr};

  /// The region that an address lies in: its list and place in it; nullptr: in none.
  std::pair<const std::vector<Extent>*, std::size_t> find(Address at) const;
  /// Whether a range stays in its region when it is shifted.
  bool inside(Address at, std::int64_t shift, std::uint64_t bytes) const;
};

/// When what was not moved in time moves after all: once delay_us have passed, or in a call that ends something.
enum class Until : std::uint8_t { delay, release, remove_peer, deregister };

/// A row. What is not set does not happen.
struct Fault {
  std::string_view name;
  void (*edit)(Moves&, const Job&){nullptr};  ///< the list, before anything moves
  /// The delivered bytes, end to end.
  void (*change)(const Moves&, std::span<std::byte>, const Job&){nullptr};
  /// What is written once all have moved; told which bytes were delivered.
  Writes (*after)(const Moves&, std::span<const std::byte>, const Job&){nullptr};
  bool late{false};           ///< `after` comes delay_us after completion was reported
  bool early{false};          ///< completion is reported first, everything moves later
  Until until{Until::delay};  ///< of `early`
  bool several{false};        ///< requests have at most n descriptors, so that several are in flight
  bool both_ways{false};      ///< needs an engine that reads and writes
};

std::span<const Fault> list_faults();
std::span<const Fault> byte_faults();
std::span<const Fault> time_faults();

/// How one engine is wrong, by its options.
struct Wrong {
  const Fault* fault{nullptr};  ///< never nullptr
  Job job;
  std::chrono::microseconds delay{60'000};
};
/// Takes the options, whose names begin with `prefix`. Throws Failure(KVCTS_E_INVALID).
Wrong take_wrong(const OpenArgs& args, const std::string& prefix = "");

/// The move that ends last; nullptr: there is none.
const Move* last_of(const Moves& moves);
std::uint64_t bytes_of(const Moves& moves);

}  // namespace kvcts::engines::sabotage
