// One device: its facts, its context, and the suite's kernels on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "device/driver.hpp"

namespace kvcts::device {

/// What a device reports about itself.
struct Facts {
  int ordinal{0};
  std::string name, uuid;
  std::string arch;  ///< "sm_90", from the device's own compute capability
  std::uint64_t memory_bytes{0};
  int multiprocessors{0};
  bool virtual_memory{false}, posix_handles{false}, memory_pools{false}, integrated{false}, host_mapping{false};
  bool modelled{false};  ///< the driver is a stand-in
};
/// Queries a device without making a context on it. Throws Error.
Facts facts_of(const Driver& driver, int ordinal);
int device_count(const Driver& driver);

/// Called with a line before every launch, e.g. "kernel kvcts_never_ends, launch 3". A worker stores it where the
/// supervisor can read it if the kernel never ends. Found through kvcts_worker_note in a worker; nullptr: no one
/// listens.
using Note = void (*)(const char* line);

/// A primary context and the module of device kernels in it. The context is current in the calling thread.
class Gpu {
 public:
  /// Throws Error when the device or the kernels are unusable.
  explicit Gpu(const Driver& driver, int ordinal = 0);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Driver& driver() const { return driver_; }
  const Facts& facts() const { return facts_; }
  Context context() const { return context_; }
  void make_current() const { check(driver_, driver_.set_current(context_), "making the context current"); }
  std::uint64_t free_bytes() const;

  /// Launches one of the kernels of kernels/cuda over `blocks` tiles of work, with enough thread blocks to fill the
  /// device several times.
  template <class Args>
  void launch(std::string_view kernel, const Args& args, std::uint64_t blocks, Stream stream) {
    Args copy = args;
    launch_raw(kernel, &copy, blocks, stream);
  }
  void synchronize(Stream stream) { check(driver_, driver_.synchronize_stream(stream), "waiting for a stream"); }

  /// Throws Error unless the device still computes: writes the tags of a small row and reads them back.
  void canary();

 private:
  void launch_raw(std::string_view kernel, void* args, std::uint64_t blocks, Stream stream);
  Function function(std::string_view kernel);

  const Driver& driver_;
  Facts facts_;
  Context context_{nullptr};
  Module module_{nullptr};
  std::map<std::string, Function, std::less<>> functions_;
  Note note_{nullptr};
  std::uint64_t launches_{0};
};

/// A stream of one device.
class OwnStream {
 public:
  explicit OwnStream(const Gpu& gpu) : gpu_(gpu) {
    check(gpu.driver(), gpu.driver().create_stream(&stream_, 1), "creating a stream");
  }
  ~OwnStream() { gpu_.driver().destroy_stream(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator Stream() const { return stream_; }

 private:
  const Gpu& gpu_;
  Stream stream_{nullptr};
};

class OwnEvent {
 public:
  explicit OwnEvent(const Gpu& gpu) : gpu_(gpu) {
    check(gpu.driver(), gpu.driver().create_event(&event_, 0), "creating an event");
  }
  ~OwnEvent() { gpu_.driver().destroy_event(event_); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  operator Event() const { return event_; }
  void record(Stream stream) { check(gpu_.driver(), gpu_.driver().record_event(event_, stream), "recording an event"); }
  /// Whether everything recorded before it is done. Throws Error if that work failed.
  bool passed() const;

 private:
  const Gpu& gpu_;
  Event event_{nullptr};
};

}  // namespace kvcts::device
