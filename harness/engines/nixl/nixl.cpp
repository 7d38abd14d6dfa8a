// Engine nixl: agents of NIXL with its UCX backend, through the C interface of an engine package (KVCTS_ENGINE_PACKAGE, e.g.
// "nixl-1.5.1").
//
// Why it works this way:
//   - NIXL brings its own UCX and cannot share a process with another one: this plug-in links none, and a worker loads one
//     plug-in.
//   - Without a progress thread NIXL works only inside its calls. A target can only call get_notifications(), so that is
//     progress().
//   - NIXL's metadata is one blob per agent, with every region registered at that time. It is unloaded with the last peer
//     made from it: otherwise ranges that the peer deregistered would stay valid and hide new ones that overlap them
//     ("not found", seen with 1.2.0 and 1.5.1).
//   - Each unloading leaves a TCP connection open on both sides until the agent is destroyed (seen with both versions), so
//     an agent that has no registrations and too many connections is recreated.
//   - guard=on (default) checks what NIXL does not: access, ranges that wrap, damaged blobs. guard=off passes everything
//     through, so that the rules table (cases/rules) sees NIXL itself.
//   - Agent names contain process and serial number: NIXL knows peers only by name, and a worker that replaces a dead one is
//     another agent.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engines/nixl/objects.hpp"
#include "engines/support/blob.hpp"
#include "engines/support/descriptors.hpp"
#include "engines/support/handles.hpp"
#include "engines/support/table.hpp"
#include "engines/support/ucx_path.hpp"

namespace kvcts::engines::nixl {
namespace {

constexpr std::uint64_t longest_notification = 4096;  // the ABI's limit
constexpr std::size_t spare_sockets = 12;             // that an agent may accumulate

struct Region {
  std::uint64_t address{0}, bytes{0};
  std::uint32_t access{0};
};

struct Peer {
  std::string agent;  ///< its name in NIXL
  std::vector<Region> regions;
};

enum class State { prepared, active, done, failed };

struct Transfer {
  std::shared_ptr<Peer> peer;
  std::uint64_t peer_handle{0};
  bool writes{true};
  std::set<std::uint64_t> locals;
  std::uint64_t bytes{0}, descriptors{0};
  std::string notification;
  Request request{nullptr};  ///< nullptr: nothing to move
  PreparedList local{nullptr}, remote{nullptr};
  State state{State::prepared};
  Failure failure;
  TcpSockets before;
};

class NixlEngine {
 public:
  static constexpr const char* engine_name = "nixl";
  static const char* engine_version() { return package_version(); }

  explicit NixlEngine(const OpenArgs& args) {
    const std::string errors = args.take("error_handling", "peer");
    if (errors != "peer" && errors != "none")
      throw Failure{KVCTS_E_INVALID, "error_handling is \"" + errors + "\", expected peer or none"};
    const std::string lists = args.take("lists", "prepared");
    if (lists != "prepared" && lists != "one-shot")
      throw Failure{KVCTS_E_INVALID, "lists is \"" + lists + "\", expected prepared or one-shot"};
    prepares_ = lists == "prepared";
    thread_ = args.take_switch("progress_thread", "off");
    merges_ = args.take_switch("merge", "on");
    guard_ = args.take_switch("guard", "on");
    path_ = args.take("path", "");
    // Hang fixtures: a target that does not respond to its peer.
    const std::string target = args.take("target", "busy");
    if (target != "busy" && target != "idle" && target != "stopped") {
      throw Failure{KVCTS_E_INVALID, "target is \"" + target + "\", expected busy, idle or stopped"};
    }
    absent_ = args.role == KVCTS_ROLE_CONSUMER ? target : "busy";
    if (path_ != "" && path_ != "tcp" && path_ != "cma")
      throw Failure{KVCTS_E_INVALID, "path is \"" + path_ + "\", expected tcp or cma"};
    args.finish();
    peer_errors_ = errors == "peer";

    log();
    name_ = args.name;
    make_agent();
    exact_ = library().exact_codes(agent_);
    library().create_notifications(&notifications_);
    all().push_back(this);
  }
  ~NixlEngine() {
    std::erase(all(), this);
    for (auto& [handle, transfer] : transfers_) drop(*transfer);
    library().destroy_agent(agent_);
    library().destroy_notifications(notifications_);
  }
  NixlEngine(const NixlEngine&) = delete;
  NixlEngine& operator=(const NixlEngine&) = delete;

  void claims(kvcts_claims& claims) const {
    claims.kinds = 1u << KVCTS_KIND_MEMORY;
    claims.memories = 1u << KVCTS_MEMORY_HOST;
    claims.reach = KVCTS_REACH_PROCESS | KVCTS_REACH_HOST | KVCTS_REACH_NETWORK;
    claims.can_write = claims.can_read = 1;
    // Over cma the initiator's kernel copies, but connecting and notifications still need the target's calls, unless
    // a thread makes them.
    claims.one_sided = path_ == "cma" && thread_;
    claims.needs_target_progress = thread_ ? 0 : 1;
    claims.repeated_registration = claims.overlapping_registration = 1;
    claims.zero_length = 1;
    claims.notifications = claims.notification_after_data = 1;
    claims.completion = KVCTS_COMPLETION_REMOTE;
    claims.ordering = KVCTS_ORDER_NONE;
    // A kernel copy is over when post() returns; messages already passed to UCX may still be sent.
    claims.cancellation = path_ == "cma" ? KVCTS_CANCEL_NONE : KVCTS_CANCEL_BEST_EFFORT;
    // The kernel copies without an error into a process that is being torn down.
    claims.peer_death = peer_errors_ && path_ != "cma" ? KVCTS_DEATH_DURING : KVCTS_DEATH_UNNOTICED;
  }

  std::uint64_t register_region(const kvcts_region& raw) {
    if (raw.kind != KVCTS_KIND_MEMORY || (raw.memory != KVCTS_MEMORY_HOST && guard_)) {
      throw Failure{KVCTS_E_NOT_SUPPORTED, "this engine moves host memory only"};
    }
    if (guard_ && raw.address == nullptr && raw.bytes > 0) throw Failure{KVCTS_E_INVALID, "the region's address is NULL"};
    const Region region{reinterpret_cast<std::uint64_t>(raw.address), raw.bytes, raw.access};
    if (region.bytes > 0 || !guard_) {
      const Registration list(raw.memory == KVCTS_MEMORY_HOST ? NixlMemory::dram : NixlMemory::vram, region.address,
                              region.bytes);
      check(library().register_memory(agent_, list.get(), CallOptions(backend_).get()), "registration");
    }
    return regions_.add(region);
  }

  void deregister_region(std::uint64_t handle) {
    const Region region = regions_.at(handle);
    for (const auto& [id, transfer] : transfers_) {
      if (transfer->state == State::active && transfer->locals.contains(handle)) {
        throw Failure{KVCTS_E_BUSY, "a request that uses the region is still active"};
      }
    }
    if (region.bytes > 0 || !guard_) {
      const Registration list(NixlMemory::dram, region.address, region.bytes);
      if (library().deregister_memory(agent_, list.get(), CallOptions(backend_).get()) != 0)
        throw failure(NixlStatus::folded, "deregistration");
    }
    regions_.take(handle);
    renew_if_idle();
  }

  /// guard=on: sealed with a checksum. guard=off: the regions, then NIXL's blob up to the end, so that a truncation
  /// truncates NIXL's blob.
  std::string export_metadata(std::span<const std::uint64_t> handles) {
    BlobWriter blob(engine_name);
    blob.value<std::uint64_t>(handles.size());
    for (const auto handle : handles) blob.value(regions_.at(handle));
    std::string own;
    check(library().local_metadata(agent_, own), "local metadata");
    if (guard_) {
      blob.text(own);
      return blob.finish();
    }
    return blob.finish() + own;
  }

  std::uint64_t add_peer(std::string_view metadata) {
    auto peer = std::make_shared<Peer>();
    std::string_view own;
    if (guard_) {
      BlobReader blob(engine_name, metadata);
      own = read(blob, *peer);
      blob.end();
    } else {
      own = read_open(metadata, *peer);
    }
    const NixlStatus loaded = library().load_metadata(agent_, own, peer->agent);
    if (loaded != NixlStatus::success) {
      Failure reason = failure(loaded, "cannot load the peer's metadata");
      // NIXL 1.2.0 does not reload an agent that it lost. Names are unique, so it is the same one.
      if (guard_ && loaded == NixlStatus::backend &&
          std::any_of(lost_.begin(), lost_.end(), [&](const auto& name) { return own.find(name) != own.npos; })) {
        reason.status = KVCTS_E_PEER_LOST;
      }
      throw reason;
    }
    ++loaded_[peer->agent];
    return peers_.add(std::move(peer));
  }

  void remove_peer(std::uint64_t handle) {
    const auto peer = peers_.take(handle);
    for (auto& [id, transfer] : transfers_) {
      if (transfer->peer_handle == handle) fail(*transfer, {KVCTS_E_NOT_FOUND, "the peer of this request was removed"});
    }
    if (--loaded_[peer->agent] > 0) return;
    loaded_.erase(peer->agent);
    library().invalidate(agent_, peer->agent);  // already gone after a disconnection: then there is nothing to do
    renew_if_idle();
  }

  std::uint64_t prepare(const kvcts_transfer& raw) {
    if (raw.op != KVCTS_OP_WRITE && raw.op != KVCTS_OP_READ) {
      throw Failure{KVCTS_E_INVALID, "op is " + std::to_string(raw.op) + ", expected 0 (write) or 1 (read)"};
    }
    auto transfer = std::make_unique<Transfer>();
    transfer->peer = peers_.at(raw.peer);
    transfer->peer_handle = raw.peer;
    transfer->writes = raw.op == KVCTS_OP_WRITE;
    if (raw.notification != nullptr)
      transfer->notification.assign(static_cast<const char*>(raw.notification), raw.notification_bytes);
    Transfers local(NixlMemory::dram), remote(NixlMemory::dram);
    const std::uint64_t count = list(raw, *transfer, local, remote);
    if (count > 0) {
      try {
        make(*transfer, local, remote, count);
      } catch (...) {
        drop(*transfer);
        throw;
      }
    }
    return transfers_.add(std::move(transfer));
  }

  std::int32_t post(std::uint64_t handle) {
    Transfer& transfer = *transfers_.at(handle);
    if (transfer.state == State::active) throw Failure{KVCTS_E_BUSY, "the request is still active"};
    if (peers_.find(transfer.peer_handle) == nullptr)
      throw Failure{KVCTS_E_NOT_FOUND, "the peer of this request was removed"};
    if (transfer.state == State::failed) throw transfer.failure;
    for (const auto local : transfer.locals) regions_.at(local);
    transfer.state = State::active;
    if (!path_.empty()) transfer.before = tcp_sockets();
    if (transfer.request == nullptr) {
      if (!transfer.notification.empty()) notify(transfer.peer_handle, transfer.notification);
      finish(transfer);
      return KVCTS_OK;
    }
    const CallOptions options(backend_);
    if (!transfer.notification.empty()) {
      library().options_set_notification(options.get(), transfer.notification.data(), transfer.notification.size());
      library().options_set_has_notification(options.get(), true);
    }
    return take(transfer, library().post(agent_, transfer.request, options.get()), "post");
  }

  std::int32_t poll(std::uint64_t handle, kvcts_progress& progress) {
    Transfer& transfer = *transfers_.at(handle);
    if (transfer.state == State::prepared) throw Failure{KVCTS_E_NOT_POSTED, "the request was not posted"};
    if (transfer.state == State::active) {
      for (NixlEngine* engine : all()) {
        if (engine != this) engine->receive();  // two agents of one process must not wait for each other
      }
      take(transfer, library().status(agent_, transfer.request), "transfer");
    }
    if (transfer.state == State::failed) throw transfer.failure;
    if (transfer.state != State::done) return KVCTS_IN_PROGRESS;
    progress.descriptors_done = transfer.descriptors;
    progress.bytes_done = transfer.bytes;
    return KVCTS_OK;
  }

  void release(std::uint64_t handle) {
    const auto transfer = transfers_.take(handle);
    drop(*transfer);
  }

  std::int32_t cancel(std::uint64_t handle) {
    Transfer& transfer = *transfers_.at(handle);
    if (transfer.state == State::prepared) throw Failure{KVCTS_E_NOT_POSTED, "the request was not posted"};
    if (transfer.state != State::active) return KVCTS_OK;
    drop(transfer);
    fail(transfer,
         {KVCTS_E_CANCELED, "cancelled: NIXL gave the request back", static_cast<std::int64_t>(NixlStatus::canceled)});
    return KVCTS_OK;
  }

  bool progress() {
    if (absent_ == "idle") return false;
    if (absent_ == "stopped") raise(SIGSTOP);
    bool worked = false;
    for (NixlEngine* engine : all()) worked = engine->receive() || worked;
    return worked;
  }

  std::int32_t flush(std::uint64_t handle) {
    peers_.at(handle);
    return KVCTS_OK;  // completion is remote already
  }

  void notify(std::uint64_t handle, std::string_view data) {
    const auto peer = peers_.at(handle);
    if (data.size() > longest_notification) {
      throw Failure{KVCTS_E_INVALID,
                    "expected a notification of at most 4096 bytes, found " + std::to_string(data.size()) + " bytes"};
    }
    if (library().send_notification(agent_, peer->agent.c_str(), data.data(), data.size(), CallOptions(backend_).get()) !=
        0) {
      throw failure(NixlStatus::folded, "notification");
    }
  }

  const std::string* oldest_notification() {
    progress();
    return inbox_.empty() ? nullptr : &inbox_.front();
  }
  void drop_notification() { inbox_.pop_front(); }

  std::map<std::string, std::string> facts() {
    const TcpBytes tcp = tcp_bytes_since({});
    const UcxLog::Path path = log().path(last_writes_ ? UcxLog::put : UcxLog::get);
    std::map<std::string, std::string> facts{{"package", chosen_package()},
                                             {"error_handling", peer_errors_ ? "peer" : "none"},
                                             {"progress_thread", thread_ ? "on" : "off"},
                                             {"lists", prepares_ ? "prepared" : "one-shot"},
                                             {"exact_codes", exact_ ? "yes" : "no: the C interface folds them"},
                                             {"bytes_written", std::to_string(bytes_written_)},
                                             {"bytes_read", std::to_string(bytes_read_)},
                                             {"descriptors", std::to_string(descriptors_)},
                                             {"requests", std::to_string(completed_)},
                                             {"agents_renewed", std::to_string(renewed_)},
                                             {"tcp_bytes_sent", std::to_string(tcp.sent)},
                                             {"tcp_bytes_received", std::to_string(tcp.received)},
                                             {"transport", path.transport.empty() ? "not chosen yet" : path.transport},
                                             {"protocol", path.protocol}};
    if (counted_) facts["engine_bytes"] = std::to_string(*counted_);
    if (const char* chosen = std::getenv("UCX_TLS"); chosen != nullptr) facts["ucx_tls"] = chosen;
    return facts;
  }

 private:
  static std::vector<NixlEngine*>& all() {
    static std::vector<NixlEngine*> engines;
    return engines;
  }
  static unsigned& opened() {
    static unsigned count = 0;
    return count;
  }
  /// Constructed before the library is opened.
  static UcxLog& log() {
    static UcxLog kept;
    return kept;
  }

  void make_agent() {
    const Config config{thread_, false, 0, 0, 1, 0, 0, true};
    const std::string unique = name_ + "/" + std::to_string(getpid()) + "." + std::to_string(++opened());
    check(library().create_agent(unique, config, agent_), "cannot create an agent");
    const std::string errors = peer_errors_ ? "peer" : "none";
    const NixlStatus made = library().create_backend(agent_, "UCX", {{"ucx_error_handling_mode", errors}}, backend_);
    if (made != NixlStatus::success) {
      library().destroy_agent(std::exchange(agent_, nullptr));
      const char* tls = std::getenv("UCX_TLS");
      throw failure(made, std::string("cannot create the UCX backend with UCX_TLS=") + (tls ? tls : "(default)") +
                              " and error_handling=" + errors);
    }
    sockets_at_start_ = tcp_sockets().size();
  }

  /// Nothing of this agent is in use: it can be recreated.
  void renew_if_idle() {
    if (regions_.size() + peers_.size() + transfers_.size() > 0 || !inbox_.empty()) return;
    if (tcp_sockets().size() <= sockets_at_start_ + spare_sockets) return;
    receive();
    if (!inbox_.empty()) return;
    library().destroy_agent(std::exchange(agent_, nullptr));
    make_agent();
    ++renewed_;
  }

  static std::string_view read(BlobReader& blob, Peer& peer) {
    const auto count = blob.value<std::uint64_t>();
    for (std::uint64_t i = 0; i < count; ++i) peer.regions.push_back(blob.value<Region>());
    return blob.text();
  }

  /// A blob without a seal around NIXL's part: the head ends where the regions end.
  static std::string_view read_open(std::string_view metadata, Peer& peer) {
    BlobWriter empty(engine_name);
    std::uint64_t count = 0;
    const std::size_t fixed = BlobWriter(engine_name).finish().size();
    if (metadata.size() < fixed + sizeof count) throw Failure{KVCTS_E_MISMATCH, "the metadata ends too early"};
    std::memcpy(&count, metadata.data() + fixed, sizeof count);
    const std::size_t head = fixed + sizeof count + count * sizeof(Region);
    if (count > metadata.size() || metadata.size() < head) throw Failure{KVCTS_E_MISMATCH, "the metadata ends too early"};
    BlobReader blob(engine_name, metadata.substr(0, head));
    blob.value<std::uint64_t>();
    for (std::uint64_t i = 0; i < count; ++i) peer.regions.push_back(blob.value<Region>());
    return metadata.substr(head);
  }

  /// Fills both lists; returns the number of descriptors for NIXL.
  std::uint64_t list(const kvcts_transfer& raw, Transfer& transfer, Transfers& local, Transfers& remote) {
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < raw.count; ++i) {
      const kvcts_descriptor& d = raw.descriptors[i];
      std::uint64_t from = d.local_offset;
      if (d.local_region != KVCTS_NO_REGION) {
        const Region& region = regions_.at(d.local_region);
        transfer.locals.insert(d.local_region);
        if (guard_) check_local(d, i, region.bytes);
        from += region.address;
      }
      const Region& there = remote_region(transfer.peer->regions, d, i, transfer.writes, guard_);
      ++transfer.descriptors;
      transfer.bytes += d.bytes;
      if (guard_ && d.bytes == 0) continue;  // NIXL would not find it at the end of a region
      local.add(from, d.bytes);
      remote.add(there.address + d.remote_offset, d.bytes);
      ++count;
    }
    return count;
  }

  void make(Transfer& transfer, const Transfers& local, const Transfers& remote, std::uint64_t count) {
    const CallOptions options(backend_);
    if (!merges_) library().options_set_skip_merge(options.get(), true);
    const NixlOp op = transfer.writes ? NixlOp::write : NixlOp::read;
    if (!prepares_) {
      return check(library().create_request(agent_, op, local.get(), remote.get(), transfer.peer->agent, transfer.request,
                                            options.get()),
                   "create_request");
    }
    check(library().prepare_list(agent_, "", local.get(), transfer.local, options.get()), "prepare_list of the local side");
    check(library().prepare_list(agent_, transfer.peer->agent, remote.get(), transfer.remote, options.get()),
          "prepare_list of the peer's side");
    std::vector<int> indices(count);
    for (std::size_t i = 0; i < count; ++i) indices[i] = static_cast<int>(i);
    check(library().make_request(agent_, op, transfer.local, transfer.remote, indices, indices, transfer.request,
                                 options.get()),
          "make_request");
  }

  static void fail(Transfer& transfer, Failure failure) {
    if (transfer.state == State::failed) return;
    transfer.state = State::failed;
    transfer.failure = std::move(failure);
  }

  /// Handles the status from post or status.
  std::int32_t take(Transfer& transfer, NixlStatus status, const char* what) {
    if (status == NixlStatus::in_progress) return KVCTS_IN_PROGRESS;
    if (status == NixlStatus::success) {
      finish(transfer);
      if (transfer.state == State::done) return KVCTS_OK;
    } else {
      if (status == NixlStatus::remote_disconnect) lost_.insert(transfer.peer->agent);
      fail(transfer, failure(status, what));
    }
    throw transfer.failure;
  }

  void finish(Transfer& transfer) {
    transfer.state = State::done;
    last_writes_ = transfer.writes;
    (transfer.writes ? bytes_written_ : bytes_read_) += transfer.bytes;
    descriptors_ += transfer.descriptors;
    ++completed_;
    if (transfer.request == nullptr || transfer.bytes == 0) return;
    Telemetry counters{};
    if (library().telemetry(agent_, transfer.request, &counters) == 0) {
      counted_ = counted_.value_or(0) + counters.bytes;
      if (counters.bytes != transfer.bytes) {
        fail(transfer, {KVCTS_E_BACKEND, "NIXL counted " + std::to_string(counters.bytes) + " bytes for a request of " +
                                             std::to_string(transfer.bytes)});
      }
    }
    if (!path_.empty()) prove(transfer);
  }

  /// Fails the request unless the path named by this engine's entry was really taken.
  void prove(Transfer& transfer) {
    const TcpBytes tcp = tcp_bytes_since(transfer.before);
    const std::uint64_t over_tcp = transfer.writes ? tcp.sent : tcp.received;
    const UcxLog::Path path = log().path(transfer.writes ? UcxLog::put : UcxLog::get);
    const bool by_tcp = over_tcp >= transfer.bytes;
    // Connecting and notifications use tcp in either case, so only larger transfers prove the path.
    const bool tells = transfer.bytes > 65536;
    const bool wrong_name = !path.transport.empty() && path.transport.find(path_) == std::string::npos;
    if (wrong_name || (path_ == "tcp" && !by_tcp) || (path_ == "cma" && tells && by_tcp)) {
      fail(transfer, {KVCTS_E_BACKEND, "expected the path " + path_ + "; UCX chose " +
                                           (path.transport.empty() ? "nothing it reported" : path.transport) + ", and " +
                                           std::to_string(over_tcp) + " of " + std::to_string(transfer.bytes) +
                                           " bytes went over TCP"});
    }
  }

  void drop(Transfer& transfer) {
    if (transfer.request != nullptr) {
      // Leave an active one to NIXL if it will not release it.
      if (library().release_request(agent_, transfer.request) == 0) library().destroy_request(transfer.request);
      transfer.request = nullptr;
    }
    for (PreparedList* list : {&transfer.local, &transfer.remote}) {
      if (*list != nullptr) library().release_prepared_list(agent_, *list);
      *list = nullptr;
    }
  }

  /// One round of NIXL's work; true: notifications arrived.
  bool receive() {
    if (library().get_notifications(agent_, notifications_, nullptr) != 0) return false;
    std::size_t agents = 0;
    library().notifications_size(notifications_, &agents);
    for (std::size_t i = 0; i < agents; ++i) {
      const char* from = nullptr;
      std::size_t count = 0;
      library().notifications_agent(notifications_, i, &from);
      library().notifications_count(notifications_, from, &count);
      for (std::size_t n = 0; n < count; ++n) {
        const void* data = nullptr;
        std::size_t bytes = 0;
        if (library().notifications_get(notifications_, from, n, &data, &bytes) == 0)
          inbox_.emplace_back(static_cast<const char*>(data), bytes);
      }
    }
    if (agents > 0) library().notifications_clear(notifications_);
    return agents > 0;
  }

  std::string name_, path_, absent_;
  bool prepares_{true}, thread_{false}, merges_{true}, guard_{true}, peer_errors_{true}, exact_{false}, last_writes_{true};
  Agent agent_{nullptr};
  Backend backend_{nullptr};
  Notifications notifications_{nullptr};
  Handles<Region> regions_{"region"};
  Handles<std::shared_ptr<Peer>> peers_{"peer"};
  std::map<std::string, unsigned> loaded_;  ///< peers per agent
  std::set<std::string> lost_;              ///< agents whose connection broke
  Handles<std::unique_ptr<Transfer>> transfers_{"request"};
  std::deque<std::string> inbox_;
  std::uint64_t bytes_written_{0}, bytes_read_{0}, descriptors_{0}, completed_{0}, renewed_{0};
  std::size_t sockets_at_start_{0};
  std::optional<std::uint64_t> counted_;  ///< bytes by NIXL's own telemetry
};

}  // namespace
}  // namespace kvcts::engines::nixl

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::nixl::NixlEngine>(host_abi);
}
