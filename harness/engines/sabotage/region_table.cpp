#include "engines/sabotage/region_table.hpp"

#include "engines/support/descriptors.hpp"

namespace kvcts::engines::sabotage {
namespace {

constexpr Address apart = Address{1} << 36;

}  // namespace

Address RegionTable::place(Region region) {
  const Address at = next_;
  next_ += region.bytes + apart;
  regions_.emplace(at, region);
  return at;
}

void RegionTable::add(std::uint64_t handle, void* host, std::uint64_t bytes) {
  ours_[handle] = place({bytes, static_cast<std::byte*>(host), handle});
}
void RegionTable::remove(std::uint64_t handle) {
  const auto found = ours_.find(handle);
  if (found == ours_.end()) return;
  regions_.erase(found->second);
  ours_.erase(found);
}
void RegionTable::add_peer(std::uint64_t peer, const std::vector<std::uint64_t>& bytes) {
  auto& list = peers_[peer];
  for (std::size_t i = 0; i < bytes.size(); ++i) list.push_back(place({bytes[i], nullptr, i}));
}
void RegionTable::remove_peer(std::uint64_t peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  for (const Address at : found->second) regions_.erase(at);
  peers_.erase(found);
}
std::uint64_t RegionTable::bytes(std::uint64_t handle) const {
  const auto found = ours_.find(handle);
  return found == ours_.end() ? 0 : regions_.at(found->second).bytes;
}

void RegionTable::show(std::uint64_t peer, FaultJob& job) const {
  job.local.clear(), job.remote.clear();
  for (const auto& [at, region] : regions_) {
    if (region.host != nullptr) job.local.push_back({at, region.bytes});
  }
  for (const Address at : peers_.at(peer)) job.remote.push_back({at, regions_.at(at).bytes});
}

std::optional<FaultMoves> RegionTable::moves(const kvcts_transfer& transfer) const {
  const auto peer = peers_.find(transfer.peer);
  if (peer == peers_.end()) return std::nullopt;
  FaultMoves out;
  for (std::uint64_t i = 0; i < transfer.count; ++i) {
    const kvcts_descriptor& d = transfer.descriptors[i];
    const auto ours = ours_.find(d.local_region);
    if (ours == ours_.end() || d.remote_region >= peer->second.size()) return std::nullopt;
    const Address theirs = peer->second[d.remote_region];
    if (!inside(d.local_offset, d.bytes, regions_.at(ours->second).bytes)) return std::nullopt;
    if (!inside(d.remote_offset, d.bytes, regions_.at(theirs).bytes)) return std::nullopt;
    FaultMove move{theirs + d.remote_offset, ours->second + d.local_offset, d.bytes};
    if (transfer.op == KVCTS_OP_READ) std::swap(move.to, move.from);
    out.push_back(move);
  }
  return out;
}

std::map<Address, RegionTable::Region>::const_iterator RegionTable::find(Address at) const {
  auto found = regions_.upper_bound(at);
  if (found == regions_.begin() || at - (--found)->first > found->second.bytes)
    throw Failure{KVCTS_E_BACKEND, "a fault produced an address outside every region"};
  return found;
}

RegionTable::List RegionTable::list(const FaultMoves& moves, std::uint32_t op) const {
  List out{op, {}};
  for (const FaultMove& move : moves) {
    const auto from = find(move.from), to = find(move.to);
    const bool writes = from->second.host != nullptr;
    const std::uint32_t way = writes ? KVCTS_OP_WRITE : KVCTS_OP_READ;
    if (out.descriptors.empty()) out.op = way;
    if (writes == (to->second.host != nullptr) || way != out.op)
      throw Failure{KVCTS_E_NOT_SUPPORTED, "the fault makes a list that no engine accepts: its moves go to both sides"};
    const auto &ours = writes ? from : to, &theirs = writes ? to : from;
    const Address here = writes ? move.from : move.to, there = writes ? move.to : move.from;
    out.descriptors.push_back(
        {ours->second.number, here - ours->first, theirs->second.number, there - theirs->first, move.bytes});
  }
  return out;
}

bool RegionTable::holds(Address at, std::uint64_t bytes) const {
  const auto found = find(at);
  return inside(at - found->first, bytes, found->second.bytes);
}

std::byte* RegionTable::host(Address at) const {
  const auto found = find(at);
  return found->second.host == nullptr ? nullptr : found->second.host + (at - found->first);
}
Piece RegionTable::piece(Address at, std::uint64_t bytes) const {
  const auto found = find(at);
  return {found->second.number, at - found->first, bytes};
}

}  // namespace kvcts::engines::sabotage
