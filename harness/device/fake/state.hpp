// What the stand-in driver keeps: memory, streams with a thread each, events, graphs. Device memory is host memory (memory
// files, so that other processes can map it); an address is the same on both sides.
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

/// Work of a stream; its status is sticky when it is not success, as on a device.
using Task = std::function<Status()>;

struct GraphTasks {
  std::vector<Task> tasks;
};

/// Tasks in order, one after the other, in a thread of its own. Never destroyed: a task may never end.
class StreamQueue {
 public:
  StreamQueue();
  void add(Task task);
  /// Waits until all that was added is done.
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
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded{0}, passed{0};  ///< how often
  double at_ms{0};
};

/// A range of addresses that device code and copies may touch.
struct Block {
  std::uint64_t bytes{0};
  int descriptor{-1};  ///< of the memory file behind it, where it has one
  enum class Kind { device, pinned, registered, ipc, mapped } kind{Kind::device};
};

struct State {
  std::mutex mutex;
  std::map<Address, Block> blocks;
  std::map<Address, std::uint64_t> reserved;
  std::map<AllocationHandle, std::pair<int, std::uint64_t>> allocations;  ///< descriptor, bytes
  AllocationHandle next_handle{1};
  std::vector<StreamQueue*> streams;
  StreamQueue* null_stream{nullptr};
  std::uint64_t used_bytes{0};
  Status sticky{status::success};
  bool initialised{false};

  /// The error that the device died of, if any.
  Status alive();
  void die(Status status);
  /// Whether [address, address + bytes) is inside of known memory.
  bool covers(Address address, std::uint64_t bytes);
  StreamQueue& stream(Stream stream);
};
State& state();

/// Total memory of the pretended device: enough for tests, small enough to run out of.
inline constexpr std::uint64_t device_bytes = std::uint64_t{2} << 30;
int device_count();

/// Maps a fresh memory file, or `descriptor`. 0: it did not work.
Address map_file(int descriptor, std::uint64_t bytes);
int make_file(std::uint64_t bytes);

}  // namespace kvcts::device::fake
