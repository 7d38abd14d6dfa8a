// Maps the addresses in fault rows to regions, because only the engine behind the front knows where memory lies.
// Regions of this side and of each peer get addresses in the book's own space, far enough apart that no list runs
// from one into the next.
#pragma once

#include <map>
#include <optional>

#include "engines/sabotage/faults.hpp"
#include "engines/sabotage/proxy_request.hpp"

namespace kvcts::engines::sabotage {

class RegionTable {
 public:
  void add(std::uint64_t handle, void* host, std::uint64_t bytes);
  void remove(std::uint64_t handle);
  void add_peer(std::uint64_t peer, const std::vector<std::uint64_t>& bytes);
  void remove_peer(std::uint64_t peer);
  std::uint64_t bytes(std::uint64_t handle) const;  ///< 0: there is none

  /// The regions that rows may read, in order.
  void show(std::uint64_t peer, FaultJob& job) const;
  /// nullopt: it names something unknown; the engine itself must report that.
  std::optional<FaultMoves> moves(const kvcts_transfer& transfer) const;

  struct List {
    std::uint32_t op{KVCTS_OP_WRITE};
    std::vector<kvcts_descriptor> descriptors;
  };
  /// The list for the engine. `op`: for an empty list. Throws Failure(KVCTS_E_NOT_SUPPORTED) if the list goes both ways.
  List list(const FaultMoves& moves, std::uint32_t op) const;

  /// Whether that many bytes lie in one region; an engine refuses a range that does not.
  bool holds(Address at, std::uint64_t bytes) const;
  /// Memory of this side; nullptr: the address is the peer's.
  std::byte* host(Address at) const;
  /// Memory of the peer.
  Piece piece(Address at, std::uint64_t bytes) const;

 private:
  struct Region {
    std::uint64_t bytes{0};
    std::byte* host{nullptr};  ///< nullptr: a peer's
    std::uint64_t number{0};   ///< its handle, or its ordinal in the peer's metadata
  };
  Address place(Region region);
  std::map<Address, Region>::const_iterator find(Address at) const;

  Address next_{1};
  std::map<Address, Region> regions_;
  std::map<std::uint64_t, Address> ours_;                ///< by handle
  std::map<std::uint64_t, std::vector<Address>> peers_;  ///< in order
};

}  // namespace kvcts::engines::sabotage
