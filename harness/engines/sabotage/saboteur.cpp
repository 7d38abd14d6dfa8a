// Engine saboteur: engine shm, wrong on purpose in one way from the rows of faults.hpp, whose options it takes.
// `kvcts sabotage` substitutes it for a case's engine to show that the suite would notice. Unlike the fixture it
// corrupts only bytes, never its process.
#include <algorithm>
#include <cstring>
#include <thread>

#include "engines/sabotage/faults.hpp"
#include "engines/support/shared_memory.hpp"

namespace kvcts::engines {
namespace {

using sabotage::Address;

/// Here an address is one of this process.
std::byte* pointer(Address at) { return reinterpret_cast<std::byte*>(at); }
Address address(const std::byte* at) { return reinterpret_cast<Address>(at); }

sabotage::FaultMoves to_rows(std::span<const Move> moves) {
  sabotage::FaultMoves out;
  for (const Move& move : moves) out.push_back({address(move.to), address(move.from), move.bytes});
  return out;
}

class MappedMemory final : public sabotage::PeerMemory {
 public:
  std::vector<std::vector<std::byte>> read(std::span<const sabotage::ByteRange> pieces) override {
    std::vector<std::vector<std::byte>> out;
    for (const auto& piece : pieces) out.emplace_back(pointer(piece.address), pointer(piece.address + piece.bytes));
    return out;
  }
};

class InjectorEngine final : public SharedMemoryEngine {
 public:
  static constexpr const char* engine_name = "saboteur";
  static const char* engine_version() { return "1"; }

  explicit InjectorEngine(const OpenArgs& args) : SharedMemoryEngine(engine_name, args), wrong_(sabotage::take_wrong(args)) {
    args.finish();
    wrong_.job.memory = &memory_;
  }

  void claims(kvcts_claims& claims) const override {
    SharedMemoryEngine::claims(claims);
    if (fault().several) claims.max_descriptors = static_cast<std::uint64_t>(wrong_.job.n);
  }

  // These hide the base's: the table calls the most derived class's.
  std::uint64_t add_peer(std::string_view metadata) {
    wrong_.job.remote.clear();
    wrong_.job.request = 0;  // each connection starts with a first request
    return SharedMemoryEngine::add_peer(metadata);
  }
  void release(std::uint64_t request) {
    arrive(sabotage::Until::release);
    SharedMemoryEngine::release(request);
  }
  void remove_peer(std::uint64_t peer) {
    arrive(sabotage::Until::remove_peer);
    SharedMemoryEngine::remove_peer(peer);
  }
  void deregister_region(std::uint64_t region) {
    arrive(sabotage::Until::deregister);
    SharedMemoryEngine::deregister_region(region);
  }

 protected:
  void keep(const kvcts_region& region, LocalRegion& local) override {
    SharedMemoryEngine::keep(region, local);
    wrong_.job.local.push_back({address(local.address), local.bytes});
  }
  void forget(std::uint64_t handle, LocalRegion& local) override {
    std::erase_if(wrong_.job.local, [&](const auto& extent) { return extent.address == address(local.address); });
    SharedMemoryEngine::forget(handle, local);
  }
  void met(const RemoteRegion& region) override {
    wrong_.job.remote.push_back({address(region.address), region.bytes});
    if (fault().late || fault().early) kept_.push_back(region.mapping);
  }

  void edit(std::vector<Move>& moves) override {
    if (fault().early) later(std::exchange(moves, {}));
    if (fault().edit != nullptr) {
      sabotage::FaultMoves list = to_rows(moves);
      fault().edit(list, wrong_.job);
      moves.clear();
      for (const auto& move : list) moves.push_back({pointer(move.to), pointer(move.from), move.bytes});
    }
    ++wrong_.job.request;
  }

  bool may_complete(std::span<const Move> done) override {
    if (fault().change == nullptr && fault().after == nullptr) return true;
    std::vector<std::byte> bytes;
    for (const Move& move : done) bytes.insert(bytes.end(), move.to, move.to + move.bytes);
    const sabotage::FaultMoves moves = to_rows(done);
    if (fault().after != nullptr) write(fault().after(moves, bytes, wrong_.job));
    if (fault().change != nullptr) {
      std::vector<std::byte> delivered = bytes;
      fault().change(moves, bytes, wrong_.job);
      auto next = bytes.begin();
      for (const Move& move : done) next = copy_from(next, move);
      wrong_.job.previous = std::move(delivered);
    }
    return true;
  }

 private:
  const sabotage::Fault& fault() const { return *wrong_.fault; }

  static std::vector<std::byte>::iterator copy_from(std::vector<std::byte>::iterator bytes, const Move& move) {
    const auto end = bytes + static_cast<std::ptrdiff_t>(move.bytes);
    std::copy(bytes, end, move.to);
    return end;
  }
  void write(sabotage::ExtraWrites writes) const {
    const auto now = [](const sabotage::ExtraWrites& all) {
      for (const auto& one : all) std::copy(one.bytes.begin(), one.bytes.end(), pointer(one.to));
    };
    if (!fault().late) return now(writes);
    std::thread([now, writes = std::move(writes), delay = wrong_.delay, kept = kept_] {
      std::this_thread::sleep_for(delay);
      now(writes);
    }).detach();
  }
  /// Reported complete now, moved later, or in the call that the row names.
  void later(std::vector<Move> moves) {
    if (fault().until != sabotage::Until::delay) {
      owed_.insert(owed_.end(), moves.begin(), moves.end());
      return;
    }
    std::thread([moves = std::move(moves), delay = wrong_.delay, kept = kept_] {
      std::this_thread::sleep_for(delay);
      for (const Move& move : moves) std::memmove(move.to, move.from, move.bytes);
    }).detach();
  }

  void arrive(sabotage::Until call) {
    if (fault().until != call) return;
    for (const Move& move : std::exchange(owed_, {})) std::memmove(move.to, move.from, move.bytes);
  }

  sabotage::InjectedFault wrong_;
  MappedMemory memory_;
  std::vector<Move> owed_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace
}  // namespace kvcts::engines

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::InjectorEngine>(host_abi);
}
