// The other side of a conformance test: an agent in this process or in a child, controlled by a few commands. Both
// sides' memory is memory files that the test maps, so bytes are checked without the agent's help.
#pragma once

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engines/transport/session.hpp"

namespace kvcts::testing {

/// A memory file, mapped.
class Memory {
 public:
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  int fd() const { return fd_; }
  unsigned char* data() { return data_; }
  std::size_t size() const { return bytes_; }
  std::string copy() const { return {reinterpret_cast<const char*>(data_), bytes_}; }
  /// Position-dependent bytes: a hash of (seed, position), so that every shift or swap shows.
  void fill(std::uint64_t seed);
  transport::Region region(std::uint64_t offset, std::uint64_t bytes, std::uint32_t access = 7) const;
  /// Another memory file under the same descriptor and at the same address. The one before is kept and watched.
  void exchange();
  /// Whether every exchanged file still has the bytes that it had then.
  bool earlier_untouched() const;

 private:
  struct Earlier {
    unsigned char* data;
    std::string bytes;
  };
  int fd_{-1};
  unsigned char* data_{nullptr};
  std::size_t bytes_{0};
  std::vector<Earlier> earlier_;
};

/// How to start an engine.
struct Placement {
  std::string name;    ///< of the test
  std::string plugin;  ///< stem
  int processes{2};
  std::map<std::string, std::string> options, environment;
  std::string dies_with_its_peer{};  ///< why it is not used after a peer's death; "": it is
  friend void PrintTo(const Placement& placement, std::ostream* stream) { *stream << placement.name; }
};

class Target {
 public:
  virtual ~Target() = default;
  virtual transport::RegionId add(const transport::Region& region) = 0;
  virtual void remove(transport::RegionId region) = 0;
  virtual std::string metadata(const std::vector<transport::RegionId>& regions) = 0;
  virtual std::string take_notification() = 0;  ///< waits up to 5 s; "" when none came
  virtual long open_files() = 0;
  virtual void kill() = 0;  ///< SIGKILL; in one process: closes the agent
};

/// Starts the target. With two processes it forks the child immediately: call it before anything loads a plug-in here.
std::unique_ptr<Target> start_target(const Placement& setup);

long count_open_files();

}  // namespace kvcts::testing
