// Memory of another process on this host, accessed through its memory files.
//
// How a peer opens a memory file: the metadata names (process, start time, descriptor, device, inode), and the peer
// opens /proc/PROCESS/fd/DESCRIPTOR. The alternatives are worse:
//   - pidfd_getfd(2) needs the right to *attach* (PTRACE_MODE_ATTACH_REALCREDS): Yama's ptrace_scope=1, the default of
//     Ubuntu, and the seccomp profiles of container runtimes deny it between siblings. Opening through /proc needs only
//     PTRACE_MODE_READ, which the same user always has on a dumpable process.
//   - SCM_RIGHTS over a socket needs the target's cooperation: a stopped or hung target would stall add_peer().
// The owner holds duplicates of the descriptors until it deregisters. Device and inode are compared after opening, so
// a recycled process id or descriptor is detected and never written to.
//
// Peers see registrations in a directory page (a memory file of the agent): one word per region, 0 once deregistered.
// So a stale blob causes a typed error instead of a stray write. Notifications are datagrams to a socket of the agent
// in the abstract namespace: the kernel keeps them in order, and a full queue or a dead peer is an immediate error.
#pragma once

#include <atomic>

#include "engines/support/copy_engine.hpp"

namespace kvcts::engines {

/// An open descriptor.
class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(other.release()) {}
  File& operator=(File&& other) noexcept;
  ~File();
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

/// A mapping of a whole file.
class Mapping {
 public:
  Mapping(int descriptor, std::uint64_t bytes, bool writable);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_{nullptr};
  std::uint64_t bytes_{0};
};

/// Identifies a file of a process, so that another process can open it and verify that it is the right one.
struct FileIdentity {
  std::int32_t descriptor{-1};
  std::uint32_t reserved{0};
  std::uint64_t device{0}, inode{0};
};

struct AgentIdentity {
  std::int64_t process{0};
  std::uint64_t start_time{0};  ///< of the process, clock ticks since boot: field 22 of /proc/PID/stat
  std::uint64_t id[2]{};        ///< random; also the socket's name
  FileIdentity directory;
};

class SharedMemoryEngine : public CopyEngine {
 public:
  SharedMemoryEngine(const char* engine, const OpenArgs& args);
  ~SharedMemoryEngine() override;
  void claims(kvcts_claims& claims) const override;

 protected:
  void keep(const kvcts_region& region, LocalRegion& local) override;
  void forget(std::uint64_t handle, LocalRegion& local) override;
  void write_agent(BlobWriter& blob) override;
  void write_region(BlobWriter& blob, std::uint64_t handle, const LocalRegion& local) override;
  std::shared_ptr<Reach> read_agent(BlobReader& blob) override;
  RemoteRegion read_region(BlobReader& blob, Reach& reach) override;
  void fetch_notifications() override;

 private:
  using Slot = std::atomic<std::uint64_t>;
  struct Shared;
  class Remote;
  Slot& slot(std::uint64_t index) { return reinterpret_cast<Slot*>(directory_->data())[index]; }

  AgentIdentity self_;
  File directory_file_, socket_;
  std::unique_ptr<Mapping> directory_;
  std::vector<std::uint64_t> free_slots_;
  std::uint64_t next_slot_{0}, next_generation_{1};
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<Remote>> remotes_;  ///< by agent id; kept while alive
};

}  // namespace kvcts::engines
