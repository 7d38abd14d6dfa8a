// Hosts a transport plug-in: loads it, enforces the ABI (kvcts_transport.h) and turns it into values and typed errors.
//
//   auto plugin = Plugin::load(find_plugin("kvcts_engine_shm"));
//   Session session(plugin, {.name = "lane0/producer", .role = Role::producer, .options = {}});
//   RegionId r = session.register_region({.address = p, .bytes = n, .fd = memfd});
//   std::string blob = session.metadata(std::array{r});         // carried to the other side
//   PeerId peer = session.add_peer(blob_of_other_side);
//   RequestId q = session.post(peer, Op::write, {{r, 0, 0, 0, n}});
//   session.wait(q);  session.release(q);
//
// One thread at a time uses a Session; where claims().thread_safe, several may, each with its own requests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/transport/kvcts_transport.h"

namespace kvcts::transport {

/// The ABI's status codes, plus three of the host.
enum class Code : std::int32_t {
  invalid = KVCTS_E_INVALID,
  not_found = KVCTS_E_NOT_FOUND,
  not_permitted = KVCTS_E_NOT_PERMITTED,
  not_supported = KVCTS_E_NOT_SUPPORTED,
  peer_lost = KVCTS_E_PEER_LOST,
  backend = KVCTS_E_BACKEND,
  mismatch = KVCTS_E_MISMATCH,
  busy = KVCTS_E_BUSY,
  canceled = KVCTS_E_CANCELED,
  too_small = KVCTS_E_TOO_SMALL,
  no_resources = KVCTS_E_NO_RESOURCES,
  timed_out = KVCTS_E_TIMED_OUT,
  not_posted = KVCTS_E_NOT_POSTED,
  cannot_load = -1000,  ///< the file exists but the loader refuses it: not a library, or a linked library is missing
  contract = -1001,     ///< the plug-in breaks the ABI: wrong version, truncated table, unknown status, lying claims
  absent = -1002,       ///< no such plug-in file: the machine lacks it
};
std::string_view name(Code code);  ///< "not found", "peer lost", ...

/// The one exception of this library. what() = "<engine>: <call>: <code>: <text>".
class TransportError : public std::runtime_error {
 public:
  TransportError(Code code, const std::string& text, std::int64_t native = 0)
      : std::runtime_error(text), code_(code), native_(native) {}
  Code code() const { return code_; }
  std::int64_t native() const { return native_; }  ///< the engine's own code, 0 when there is none

 private:
  Code code_;
  std::int64_t native_;
};

/// A loaded plug-in. Never unloaded: engines leave threads and handlers behind.
class Plugin {
 public:
  /// Loads with RTLD_NOW | RTLD_LOCAL and checks version, sizes and required calls. Throws TransportError(cannot_load |
  /// contract).
  static std::shared_ptr<const Plugin> load(const std::filesystem::path& file);
  /// Checks a table that is already in this program (tests, engines linked in).
  static std::shared_ptr<const Plugin> adopt(const kvcts_transport* table, const std::string& origin);

  const std::string& engine() const { return engine_; }    ///< "ucx"
  const std::string& version() const { return version_; }  ///< "1.13.1"
  const std::string& origin() const { return origin_; }    ///< file it came from
  const kvcts_transport& table() const { return table_; }  ///< a copy: members beyond the plug-in's size are NULL

 private:
  Plugin() = default;
  std::string engine_, version_, origin_;
  kvcts_transport table_{};
};

/// File of an engine: searches $KVCTS_ENGINE_PATH (colon separated folders), then <program>/../lib/kvcts/engines and
/// the corresponding library folders. `stem` e.g. "kvcts_engine_memcpy"; a path with a slash is used unchanged.
/// Throws TransportError(absent) naming the searched folders.
std::filesystem::path find_plugin(std::string_view stem);
/// Whether find_plugin() takes it from this installation, not from $KVCTS_ENGINE_PATH or an explicit path. false if
/// there is none.
bool is_own_plugin(std::string_view stem);
/// Stems of all plug-ins that find_plugin() would find, sorted, without loading them.
std::vector<std::string> list_plugins();

enum class Role : std::uint32_t { producer = KVCTS_ROLE_PRODUCER, consumer = KVCTS_ROLE_CONSUMER };
enum class Op : std::uint32_t { write = KVCTS_OP_WRITE, read = KVCTS_OP_READ };

using RegionId = std::uint64_t;
using PeerId = std::uint64_t;
using RequestId = std::uint64_t;
using Descriptor = kvcts_descriptor;  ///< {local_region (a RegionId), local_offset, remote_region (ordinal in the peer's
                                      ///< metadata), remote_offset, bytes}
using Claims = kvcts_claims;
using Facts = std::map<std::string, std::string>;

struct OpenOptions {
  std::string name{};
  Role role{Role::producer};
  std::map<std::string, std::string> options{};
};

struct Region {
  void* address{nullptr};
  std::uint64_t bytes{0};
  int fd{-1};                  ///< memory file (or file) behind it; stays the caller's
  std::uint64_t fd_offset{0};  ///< where `address` lies in it
  std::uint32_t kind{KVCTS_KIND_MEMORY};
  std::uint32_t memory{KVCTS_MEMORY_HOST};
  int device{0};
  std::uint32_t access{KVCTS_ACCESS_LOCAL | KVCTS_ACCESS_REMOTE_READ | KVCTS_ACCESS_REMOTE_WRITE};
  std::string key{};  ///< KVCTS_KIND_OBJECT
};

struct Status {
  bool done{false};
  std::optional<std::uint64_t> bytes, descriptors;  ///< done so far, where the engine knows
};

/// Checks that what the engine shares with other processes still works (kvcts_transport.h, canary). False: it has no
/// canary. Throws TransportError that names what is broken. It may hang then: call it in a separate process.
bool ask_canary(const Plugin& plugin, const OpenOptions& options);

/// One agent of a plug-in. Methods throw TransportError; the destructor closes.
class Session {
 public:
  Session(std::shared_ptr<const Plugin> plugin, const OpenOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Plugin& plugin() const { return *plugin_; }
  const Claims& claims() const { return claims_; }

  RegionId register_region(const Region& region);
  void deregister(RegionId region);
  std::string metadata(std::span<const RegionId> regions);
  PeerId add_peer(std::string_view metadata);
  void remove_peer(PeerId peer);

  /// Checks and stores the list; moves nothing. Descriptors are kept here until release.
  RequestId prepare(PeerId peer, Op op, std::vector<Descriptor> descriptors, std::string notification = {});
  /// Starts a prepared request, also repeatedly. True: already complete.
  bool start(RequestId request);
  /// prepare + start.
  RequestId post(PeerId peer, Op op, std::vector<Descriptor> descriptors, std::string notification = {});
  Status poll(RequestId request);
  /// Polls until done: spins briefly, then yields, then sleeps 50 us per round. Calls `seen` after every poll. No
  /// time limit: deadlines are enforced from outside the process.
  Status wait(RequestId request, const std::function<void(const Status&)>& seen = {});
  /// nullopt: the engine does not report it. True: done, false: in progress; throws on a failed descriptor.
  std::optional<bool> descriptor_done(RequestId request, std::uint64_t index);
  void cancel(RequestId request);  ///< TransportError(not_supported) where the engine has none
  void release(RequestId request);

  bool progress();          ///< one round; true: there was work. Engines without progress(): false
  void flush(PeerId peer);  ///< waits as wait() does; engines without flush(): nothing
  void notify(PeerId peer, std::string_view data);
  std::optional<std::string> take_notification();
  Facts facts();  ///< counters and path, e.g. {"bytes_written": "4096", "transport": "tcp/lo"}

 private:
  struct Held;
  Held* held(RequestId request);  ///< nullptr: not one of ours
  void drop(RequestId request);
  void check_counts(const Facts& facts);
  void check_progress(const char* what, const std::optional<std::uint64_t>& now, const std::optional<std::uint64_t>& before,
                      std::uint64_t all) const;
  const kvcts_transport& api() const { return plugin_->table(); }
  std::int32_t checked(std::int32_t status, const char* call, bool may_be_in_progress = false) const;

  std::shared_ptr<const Plugin> plugin_;
  kvcts_agent* agent_{nullptr};
  Claims claims_{};
  std::mutex held_lock_;  ///< guards the map: several threads make and give back requests
  std::map<RequestId, std::unique_ptr<Held>> held_;
  std::map<std::string, std::uint64_t> counts_;  ///< the last that facts() reported
};

/// Every claim by name, in the ABI's order, for hello replies and reports. UINT64_MAX = unlimited.
std::vector<std::pair<std::string, std::uint64_t>> claim_values(const Claims& claims);
std::string to_text(const Claims& claims);  ///< one "key=value" per line

}  // namespace kvcts::transport
