// Shared by every engine that copies with the CPU: regions, requests, range checks and a memmove loop that never
// blocks its caller for long. The deriving engine decides how this process reaches a peer's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engines/support/blob.hpp"
#include "engines/support/handles.hpp"
#include "engines/support/table.hpp"

namespace kvcts::engines {

struct LocalRegion {
  std::byte* address{nullptr};
  std::uint64_t bytes{0};
  std::uint32_t access{0};
  std::shared_ptr<void> extra;  ///< what the deriving engine keeps with it
};

/// A region of a peer, as this process reaches it.
struct RemoteRegion {
  std::byte* address{nullptr};
  std::uint64_t bytes{0};
  std::uint32_t access{0};
  std::uint64_t slot{0}, generation{0};  ///< for Reach::live()
  std::shared_ptr<void> mapping;         ///< keeps `address` valid
};

/// The way to one peer agent; shared by all peers made from its blobs (one blob per case).
class Reach {
 public:
  virtual ~Reach() = default;
  virtual bool alive() = 0;                           ///< the peer's agent still exists
  virtual bool live(const RemoteRegion& region) = 0;  ///< the peer still has this region registered
  virtual void send(std::string_view notification) = 0;
};

/// One contiguous piece of a request, in this process's addresses.
struct Move {
  std::byte* to{nullptr};
  const std::byte* from{nullptr};
  std::uint64_t bytes{0};
};

class CopyEngine {
 public:
  explicit CopyEngine(std::string_view engine) : engine_(engine) {}
  virtual ~CopyEngine() = default;

  virtual void claims(kvcts_claims& claims) const;
  std::uint64_t register_region(const kvcts_region& region);
  void deregister_region(std::uint64_t handle);
  std::string export_metadata(std::span<const std::uint64_t> handles);
  std::uint64_t add_peer(std::string_view metadata);
  void remove_peer(std::uint64_t peer);
  std::uint64_t prepare(const kvcts_transfer& transfer);
  std::int32_t post(std::uint64_t request);
  std::int32_t poll(std::uint64_t request, kvcts_progress& progress);
  void release(std::uint64_t request);
  std::int32_t descriptor_status(std::uint64_t request, std::uint64_t index);
  std::int32_t cancel(std::uint64_t request);
  void notify(std::uint64_t peer, std::string_view data);
  const std::string* oldest_notification();
  void drop_notification() { inbox_.pop_front(); }
  virtual std::map<std::string, std::string> facts();

 protected:
  enum class Stage { open, registration, connect, transfer, midway, complete };
  /// Called at each stage; fixtures misbehave here.
  virtual void at(Stage) {}
  /// Called with a prepared list before it is used; fixtures change it here.
  virtual void edit(std::vector<Move>&) {}
  /// All moves are done. False: do not report completion yet.
  virtual bool may_complete(std::span<const Move>) { return true; }
  /// Throws Failure if the engine cannot use this region at all.
  virtual void accept(const kvcts_region& region) const;
  /// A request begins. True: the engine moves the list itself, and may_complete() reports when it is done. The list
  /// does not move in memory until the request is released.
  virtual bool moves_by_itself(std::span<const Move>) { return false; }
  /// An active request was cancelled or released.
  virtual void abandon(std::span<const Move>) {}

  /// Checks the region and keeps what the engine needs (region.extra).
  virtual void keep(const kvcts_region& region, LocalRegion& local) = 0;
  virtual void forget(std::uint64_t handle, LocalRegion& local) = 0;
  virtual void write_agent(BlobWriter& blob) = 0;
  virtual void write_region(BlobWriter& blob, std::uint64_t handle, const LocalRegion& local) = 0;
  virtual std::shared_ptr<Reach> read_agent(BlobReader& blob) = 0;
  virtual RemoteRegion read_region(BlobReader& blob, Reach& reach) = 0;
  /// A region of a new peer, fully known, including `bytes` and `access`.
  virtual void met(const RemoteRegion&) {}
  virtual void fetch_notifications() {}

  std::deque<std::string> inbox_;

 private:
  struct Peer {
    std::shared_ptr<Reach> reach;
    std::vector<RemoteRegion> regions;
  };
  enum class State { prepared, active, done, failed };
  struct Request {
    std::shared_ptr<Peer> peer;
    std::uint64_t peer_handle{0};
    std::vector<Move> moves;
    std::vector<std::uint64_t> locals, remotes;  ///< distinct regions in use
    std::uint64_t planned_bytes{0}, descriptors{0};
    bool writes{true};
    std::string notification;
    State state{State::prepared};
    bool by_engine{false};  ///< moves_by_itself()
    Failure failure;
    std::size_t next{0};                ///< next move
    std::uint64_t within{0}, moved{0};  ///< bytes already moved, of that move and of all
  };
  void check(Request& request);
  std::int32_t advance(Request& request);
  bool completed(Request& request);

  std::string engine_;
  Handles<LocalRegion> regions_{"region"};
  Handles<std::shared_ptr<Peer>> peers_{"peer"};
  Handles<Request> requests_{"request"};
  std::uint64_t bytes_written_{0}, bytes_read_{0}, descriptors_{0}, completed_{0};
};

}  // namespace kvcts::engines
