// Engine cuda: bytes move in device memory, where regions are mirrored (support/mirror.hpp). A transfer is one stream
// of copies between mirrors, enqueued at once and polled through an event.
//
//   path    copy (device memcpy, default), staged (through pinned host memory), peer (from device 0 to device 1)
//   memory  of the mirrors: device (cudaMalloc's), pool, vmm (several mapped pieces), pinned, registered
//   device  ordinal, default 0
//
// With two workers the initiator opens the peer's mirror by CUDA IPC (memory=device). To test the watchdog, `fault`
// misbehaves on purpose:
//   never_ends, waits_for_flag, illegal_address, device_assert   launches such a kernel before the copies
//   early        reports completion immediately; the copies wait after a bounded spin of `delay_ms`: read before ready
//   late_write   changes one byte of the destination `delay_ms` after completion was reported
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "engines/support/mirror.hpp"
#include "engines/support/shared_memory.hpp"
#include "kernels/cuda/launch.hpp"

namespace kvcts::engines {
namespace {

using device::Address;

Failure failure_of(const device::Error& error) {
  using namespace device::status;
  std::int32_t code = KVCTS_E_BACKEND;
  if (error.status == out_of_memory) code = KVCTS_E_NO_RESOURCES;
  if (error.status == not_supported) code = KVCTS_E_NOT_SUPPORTED;
  return {code, error.text, error.status};
}

/// Runs a device call; converts its errors into failures of the engine.
template <class Call>
decltype(auto) guarded(Call&& call) {
  try {
    return call();
  } catch (const device::Error& error) {
    throw failure_of(error);
  }
}

/// Contexts of this process, one per device, created on first use and never released.
device::Gpu& gpu_of(int ordinal) {
  static auto* const all = new std::map<int, std::unique_ptr<device::Gpu>>;
  std::string reason;
  const device::Driver* driver = device::driver(reason);
  if (driver == nullptr) throw Failure{KVCTS_E_NOT_SUPPORTED, reason};
  return guarded([&]() -> device::Gpu& {
    auto& gpu = (*all)[ordinal];
    if (!gpu) gpu = std::make_unique<device::Gpu>(*driver, ordinal);
    gpu->make_current();
    return *gpu;
  });
}

/// Mirrors of this process by number: lets an agent find the mirrors of another agent in the same process.
std::map<std::uint64_t, std::weak_ptr<Mirror>>& mirrors_here() {
  static std::map<std::uint64_t, std::weak_ptr<Mirror>> all;
  return all;
}

struct MirrorName {
  std::int64_t process{0};
  std::uint64_t number{0};
  std::uint64_t bytes{0};
  std::int32_t has_handle{0};
  std::int32_t memory{0};
  device::IpcHandle handle{};
};

class CudaEngine final : public SharedMemoryEngine {
 public:
  static constexpr const char* engine_name = "cuda";
  static const char* engine_version() { return "1"; }

  explicit CudaEngine(const OpenArgs& args) : SharedMemoryEngine(engine_name, args) {
    path_ = args.take("path", "copy");
    fault_ = args.take("fault", "");
    delay_ms_ = args.take_number("delay_ms", 50);
    ordinal_ = static_cast<int>(args.take_number("device", 0));
    const std::string memory = args.take("memory", "device");
    args.finish();
    one_of("path", path_, {"copy", "staged", "peer"});
    one_of("fault", fault_, {"", "never_ends", "waits_for_flag", "illegal_address", "device_assert", "early", "late_write"});
    memory_ = guarded([&] { return device::memory_kind_from_name(memory); });
    if (path_ == "peer" && args.role == KVCTS_ROLE_CONSUMER) ordinal_ += 1;
    gpu_ = &gpu_of(ordinal_);
    if (const std::string why = device::lack(*gpu_, memory_); !why.empty()) throw Failure{KVCTS_E_NOT_SUPPORTED, why};
    stream_ = guarded([&] { return std::make_unique<device::OwnStream>(*gpu_); });
  }
  ~CudaEngine() override {
    for (std::thread& late : late_) late.join();
    gpu_->driver().set_current(gpu_->context());
    if (fault_.empty()) gpu_->driver().synchronize_stream(*stream_);
  }

  static void canary(const OpenArgs& args) {
    device::Gpu& gpu = gpu_of(static_cast<int>(args.take_number("device", 0)));
    guarded([&] { gpu.canary(); });
  }

  void claims(kvcts_claims& claims) const override {
    SharedMemoryEngine::claims(claims);
    claims.repeated_registration = claims.overlapping_registration = 0;  // a byte has one mirror
  }
  std::map<std::string, std::string> facts() override {
    auto facts = SharedMemoryEngine::facts();
    facts["transport"] = "cuda/" + path_;
    facts["memory"] = std::string(device::name(memory_));
    facts["device"] = gpu_->facts().name;
    facts["arch"] = gpu_->facts().arch;
    facts["device_evidence"] = gpu_->facts().modelled ? "modelled" : "executed";
    return facts;
  }

 protected:
  void keep(const kvcts_region& region, LocalRegion& local) override {
    for (const auto& [at, placed] : *places_) {
      if (local.address < at + std::max<std::uint64_t>(placed.bytes, 1) &&
          at < local.address + std::max<std::uint64_t>(local.bytes, 1)) {
        throw Failure{KVCTS_E_INVALID, "the range is registered already, wholly or in part, and a byte has one mirror"};
      }
    }
    auto mirror = guarded([&] { return std::make_shared<Mirror>(*gpu_, memory_, local.address, local.bytes); });
    SharedMemoryEngine::keep(region, local);
    static std::uint64_t counter = 0;
    mirrors_here()[++counter] = mirror;
    numbers_[local.extra.get()] = counter;
    place(local.address, local.bytes, std::move(mirror));
  }
  void forget(std::uint64_t handle, LocalRegion& local) override {
    drain();
    mirrors_here().erase(numbers_[local.extra.get()]);
    numbers_.erase(local.extra.get());
    places_->erase(local.address);
    SharedMemoryEngine::forget(handle, local);
  }
  void write_region(BlobWriter& blob, std::uint64_t handle, const LocalRegion& local) override {
    SharedMemoryEngine::write_region(blob, handle, local);
    const auto mirror = places_->at(local.address).mirror;
    gpu_->make_current();
    const auto shared = mirror->handle();
    MirrorName name{getpid(),           numbers_.at(local.extra.get()),     local.bytes,
                    shared.has_value(), static_cast<std::int32_t>(memory_), {}};
    if (shared) name.handle = *shared;
    blob.value(name);
  }
  RemoteRegion read_region(BlobReader& blob, Reach& reach) override {
    RemoteRegion region = SharedMemoryEngine::read_region(blob, reach);
    if (fault_ == "early" || fault_ == "late_write") kept_.push_back(region.mapping);  // late threads write through it
    const auto name = blob.value<MirrorName>();
    std::shared_ptr<Mirror> mirror;
    if (name.process == getpid()) {
      const auto found = mirrors_here().find(name.number);
      mirror = found == mirrors_here().end() ? nullptr : found->second.lock();
      if (!mirror) throw Failure{KVCTS_E_MISMATCH, "the peer's mirror is gone: its metadata is stale"};
    } else if (name.has_handle != 0) {
      mirror = guarded([&] { return std::make_shared<Mirror>(*gpu_, name.handle, region.address, name.bytes); });
    } else {
      throw Failure{KVCTS_E_NOT_SUPPORTED, "memory of kind " +
                                               std::string(device::name(static_cast<device::MemoryKind>(name.memory))) +
                                               " cannot be shared between processes by CUDA IPC; use memory=device"};
    }
    // The remote place lives as long as the region's mapping.
    place(region.address, name.bytes, mirror);
    region.mapping = std::shared_ptr<void>(
        region.mapping.get(), [places = std::weak_ptr(places_), mapping = region.mapping, at = region.address](void*) {
          const auto still = places.lock();  // peers outlive the engine's own members
          if (still && --still->at(at).users == 0) still->erase(at);
        });
    return region;
  }

  bool moves_by_itself(std::span<const Move> moves) override {
    Flight flight;
    guarded([&] {
      gpu_->make_current();
      if (fault_ == "early") spin();
      try {
        enqueue(moves, flight);
      } catch (...) {
        flight.abandon();
        throw;
      }
      flight.done = std::make_unique<device::OwnEvent>(*gpu_);
      flight.done->record(*stream_);
    });
    flights_[moves.data()] = std::move(flight);
    return true;
  }
  bool may_complete(std::span<const Move> moves) override {
    const auto found = flights_.find(moves.data());
    if (found == flights_.end()) return true;
    Flight& flight = found->second;
    if (fault_ == "early") {
      late_.emplace_back([this, landed = std::make_shared<Flight>(std::move(flight))] { land_later(*landed); });
      flights_.erase(found);
      return true;
    }
    const bool passed = guarded([&] {
      gpu_->make_current();
      return flight.done->passed();
    });
    if (!passed) return false;
    land(flight);
    if (fault_ == "late_write" && !moves.empty()) {
      late_.emplace_back([this, at = moves.back().to] {
        std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
        *at ^= std::byte{0x40};
      });
    }
    flights_.erase(found);
    return true;
  }
  void abandon(std::span<const Move> moves) override {
    // Only land() changes host bytes, so nothing of it arrives from now on.
    const auto found = flights_.find(moves.data());
    if (found == flights_.end()) return;
    if (fault_.empty()) guarded([&] { gpu_->synchronize(*stream_); });
    found->second.abandon();
    flights_.erase(found);
  }

 private:
  struct PlacedMirror {
    std::uint64_t bytes{0};
    std::shared_ptr<Mirror> mirror;
    int users{0};  ///< a peer may be added again
  };
  using Places = std::map<std::byte*, PlacedMirror>;  ///< by first host address
  /// One request under way.
  struct Written {
    std::shared_ptr<Mirror> mirror;
    const std::byte* base{nullptr};
    std::vector<Mirror::Range> ranges;
  };
  struct Flight {
    std::unique_ptr<device::OwnEvent> done;
    std::vector<Written> written;
    std::vector<std::shared_ptr<Mirror>> read;
    std::unique_ptr<device::Allocation> bounce;
    std::uint64_t bounced{0};
    void abandon() {
      for (const Written& w : written) w.mirror->abandon();
      for (const auto& mirror : read) mirror->abandon();
    }
  };

  static void one_of(const char* option, const std::string& value, std::initializer_list<std::string_view> known) {
    if (std::find(known.begin(), known.end(), value) != known.end()) return;
    std::string all;
    for (const auto word : known) all += (all.empty() ? "" : ", ") + std::string(word);
    throw Failure{KVCTS_E_INVALID, std::string("option ") + option + " is \"" + value + "\", expected one of: " + all};
  }

  void place(std::byte* at, std::uint64_t bytes, std::shared_ptr<Mirror> mirror) {
    PlacedMirror& placed = (*places_)[at];
    placed = {bytes, std::move(mirror), placed.users + 1};
  }
  struct Place {
    std::shared_ptr<Mirror> mirror;
    const std::byte* base;
    Address address;
  };
  /// The mirror of a host address, and the address in it.
  Place mirrored(const std::byte* address) const {
    auto found = places_->upper_bound(const_cast<std::byte*>(address));
    if (found == places_->begin()) throw Failure{KVCTS_E_BACKEND, "an address without a mirror"};
    --found;
    return {found->second.mirror, found->first, found->second.mirror->address(address, found->first)};
  }

  void drain() {
    if (!fault_.empty()) return;  // what never ends is not waited for
    guarded([&] {
      gpu_->make_current();
      gpu_->synchronize(*stream_);
    });
  }

  void spin() { gpu_->launch("kvcts_spin", cuda::SpinArgs{nullptr, delay_ms_ * 1'000'000, nullptr}, 1, *stream_); }

  void misbehave() {
    if (fault_.empty() || fault_ == "early" || fault_ == "late_write") return;
    word_ = device::allocate(*gpu_, device::MemoryKind::device, 64);
    device::check(gpu_->driver(), gpu_->driver().set_words(word_->address(), 0, 16, *stream_), "clearing a word");
    const cuda::HangArgs args{reinterpret_cast<volatile cuda::u32*>(word_->address()), 8};
    gpu_->launch("kvcts_" + fault_, args, 1, *stream_);
  }

  void enqueue(std::span<const Move> moves, Flight& flight) {
    // Copy both sides in, so that bytes outside every descriptor stay unchanged.
    std::uint64_t bytes = 0;
    for (const Move& move : moves) {
      if (move.bytes == 0) continue;
      bytes += move.bytes;
      const Place to = mirrored(move.to);
      auto found = std::find_if(flight.written.begin(), flight.written.end(),
                                [&](const Written& w) { return w.mirror == to.mirror; });
      if (found == flight.written.end()) {
        begin(*to.mirror);
        found = flight.written.insert(flight.written.end(), Written{to.mirror, to.base, {}});
      }
      found->ranges.push_back({move.to, move.bytes});
      const Place from = mirrored(move.from);
      if (std::find(flight.read.begin(), flight.read.end(), from.mirror) == flight.read.end()) {
        begin(*from.mirror);
        flight.read.push_back(from.mirror);
      }
    }
    misbehave();
    if (path_ == "staged" && bytes > 0) flight.bounce = device::allocate(*gpu_, device::MemoryKind::pinned, bytes);
    for (const Move& move : moves) {
      if (move.bytes > 0) copy(move, flight);
    }
    for (const Written& written : flight.written) written.mirror->download(*stream_);
  }

  /// A mirror on the other device is filled by that device.
  void begin(Mirror& mirror) {
    if (&mirror.gpu() == gpu_) return mirror.begin(*stream_);
    mirror.gpu().make_current();
    device::OwnStream there(mirror.gpu());
    mirror.begin(there);
    mirror.gpu().synchronize(there);
    gpu_->make_current();
  }

  void copy(const Move& move, Flight& flight) {
    const auto& driver = gpu_->driver();
    const Place to = mirrored(move.to), from = mirrored(move.from);
    if (path_ == "peer") {
      device::check(driver,
                    driver.copy_peer(to.address, to.mirror->gpu().context(), from.address, from.mirror->gpu().context(),
                                     move.bytes, *stream_),
                    "copying between devices");
    } else if (path_ == "staged") {
      std::uint8_t* through = flight.bounce->host() + flight.bounced;
      flight.bounced += move.bytes;
      device::check(driver, driver.copy_out(through, from.address, move.bytes, *stream_), "copying to pinned memory");
      device::check(driver, driver.copy_in(to.address, through, move.bytes, *stream_), "copying from pinned memory");
    } else {
      device::check(driver, driver.copy(to.address, from.address, move.bytes, *stream_), "copying in device memory");
    }
  }

  /// Copies the bytes that have left the device to the host.
  static void land(Flight& flight) {
    for (const auto& mirror : flight.read) mirror->settle({}, nullptr, false);
    for (const Written& written : flight.written) written.mirror->settle(written.ranges, written.base, true);
  }
  void land_later(Flight& flight) {
    try {
      gpu_->make_current();
      while (!flight.done->passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      land(flight);
    } catch (const device::Error&) {  // then nothing arrives
    }
  }

  std::string path_, fault_;
  std::uint64_t delay_ms_{50};
  int ordinal_{0};
  device::MemoryKind memory_{device::MemoryKind::device};
  device::Gpu* gpu_{nullptr};
  std::unique_ptr<device::OwnStream> stream_;
  std::unique_ptr<device::Allocation> word_;
  std::shared_ptr<Places> places_{std::make_shared<Places>()};
  std::map<const void*, std::uint64_t> numbers_;
  std::map<const Move*, Flight> flights_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<std::thread> late_;
};

}  // namespace
}  // namespace kvcts::engines

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::CudaEngine>(host_abi);
}
