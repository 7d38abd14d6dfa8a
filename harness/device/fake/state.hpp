// The state of the stand-in driver: memory, streams with one thread each, events, graphs. Device memory is host
// memory (memory files, so that other processes can map it); an address is the same on host and device.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/driver.hpp"
#include "kernels/cuda/twin.hpp"

namespace kvcts::device::fake {

/// One task of a stream. A status other than success is sticky, as on a device.
using Task = std::function<Status()>;

struct GraphTasks {
  std::vector<Task> tasks;
};

/// Runs tasks in order on its own thread. Never destroyed: a task may never end.
class StreamQueue {
 public:
  StreamQueue();
  void add(Task task);
  /// Waits until everything added so far is done.
  void drain();
  bool idle();

  std::optional<GraphTasks> capture;  ///< set while the stream records instead of running

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::uint64_t added_{0}, done_{0};
};

/// A point in a stream.
struct FakeMark {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded{0}, passed{0};  ///< how often
  double at_ms{0};
};

/// A range of addresses that device code and copies may touch.
struct FakeBlock {
  std::uint64_t bytes{0};
  int descriptor{-1};  ///< of the backing memory file, if any
  enum class Kind { device, pinned, registered, ipc, mapped } kind{Kind::device};
};

struct FakeState {
  std::mutex mutex;
  std::map<Address, FakeBlock> blocks;
  std::map<Address, std::uint64_t> reserved;
  std::map<AllocationHandle, std::pair<int, std::uint64_t>> allocations;  ///< descriptor, bytes
  AllocationHandle next_handle{1};
  std::vector<StreamQueue*> streams;
  StreamQueue* null_stream{nullptr};
  std::uint64_t used_bytes{0};
  Status sticky{status::success};
  bool initialised{false};

  /// The error that killed the device, if any.
  Status alive();
  void die(Status status);
  /// Whether [address, address + bytes) lies in known memory.
  bool covers(Address address, std::uint64_t bytes);
  StreamQueue& stream(Stream stream);
};
FakeState& state();

/// Total memory of the pretended device: enough for tests, small enough to run out of.
inline constexpr std::uint64_t device_bytes = std::uint64_t{2} << 30;
int device_count();

/// Maps a new memory file, or `descriptor`. Returns 0 on failure.
Address map_file(int descriptor, std::uint64_t bytes);
int make_file(std::uint64_t bytes);

}  // namespace kvcts::device::fake
