// Engine ucx: put and get of UCP with real registration and exchange of remote keys; with verbs=am, active messages
// that do the same without keys (support/ucx_messages.hpp). UCX_TLS in the worker's environment selects the
// transports; facts() reports those really used.
//
// Written against UCX 1.13.1 (Debian 12); runs unchanged on 1.22.0 (ucx_package.cpp). Sources: ucp/api/ucp.h. Why it
// works this way:
//   - One context and one worker per agent, for life; one endpoint per peer agent, kept while healthy. Setting them
//   up takes milliseconds; a case needs one ucp_mem_map, ucp_rkey_pack and ucp_ep_rkey_unpack per region.
//   - A write is complete when ucp_ep_flush_nbx is: ucp_put_nbx alone completes locally.
//   - Over tcp and posix a put is emulated with active messages, so the target must progress. poll() and progress() serve
//     every agent of this process, so that two agents of one process cannot wait for each other.
//   - With verbs=am the context has no RMA and the metadata no keys, so that put and get cannot be used by mistake; a write
//     is complete when the peer has answered that the bytes are stored.
//   - UCX checks no remote bounds over tcp: ranges are checked here against the metadata. guard=off passes them
//   through, so that the rules table (cases/rules) sees UCX itself.
#include <sys/random.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "engines/support/blob.hpp"
#include "engines/support/descriptors.hpp"
#include "engines/support/handles.hpp"
#include "engines/support/table.hpp"
#include "engines/support/ucx_messages.hpp"
#include "engines/support/ucx_path.hpp"

namespace kvcts::engines {
namespace {

constexpr unsigned notification_id = 0;        // active message id
constexpr std::uint64_t window = 4096;         // operations in flight per request
constexpr unsigned rounds_a_poll = 512;        // of UCX's work, while there is any
constexpr std::uint64_t posted_a_round = 512;  // maximum operations that one post() or poll() starts

std::int32_t status_of(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return KVCTS_OK;
    case UCS_INPROGRESS:
      return KVCTS_IN_PROGRESS;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
    case UCS_ERR_OUT_OF_RANGE:
      return KVCTS_E_INVALID;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return KVCTS_E_NO_RESOURCES;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
      return KVCTS_E_NOT_SUPPORTED;
    case UCS_ERR_TIMED_OUT:
      return KVCTS_E_TIMED_OUT;
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_UNREACHABLE:
      return status == UCS_ERR_UNREACHABLE ? KVCTS_E_BACKEND : KVCTS_E_PEER_LOST;
    case UCS_ERR_CANCELED:
      return KVCTS_E_CANCELED;
    default:
      return KVCTS_E_BACKEND;
  }
}

Failure ucx_failure(ucs_status_t status, const std::string& what) {
  return {status_of(status), what + ": " + ucs_status_string(status), status};
}
/// An endpoint's error handler means one thing, whatever its code: this connection is over.
Failure lost(ucs_status_t status) {
  return {KVCTS_E_PEER_LOST, std::string("the connection to the peer is lost: ") + ucs_status_string(status), status};
}
void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) throw ucx_failure(status, what);
}

/// The connection to one peer agent. The error handler marks it; it is not used afterwards.
struct Endpoint {
  ucp_ep_h ep{nullptr};
  ucs_status_t failed{UCS_OK};
};

struct Region {
  std::byte* address{nullptr};
  std::uint64_t bytes{0};
  std::uint32_t access{0};
  ucp_mem_h memory{nullptr};  ///< NULL for zero bytes: UCX maps no empty range
};

struct RemoteRegion {
  std::uint64_t address{0}, bytes{0};
  std::uint32_t access{0};
  ucp_rkey_h key{nullptr};
  std::uint64_t handle{0};  ///< at the peer
};

/// A peer from one blob. Requests hold it, so that keys outlive the operations that use them.
struct Peer {
  std::shared_ptr<Endpoint> endpoint;
  std::vector<RemoteRegion> regions;
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    for (const auto& region : regions) {
      if (region.key != nullptr) ucp_rkey_destroy(region.key);
    }
  }
};

enum class State { prepared, moving, flushing, notifying, done, failed };

struct Request;

struct Operation {
  Request* request{nullptr};
  std::byte* local{nullptr};
  std::uint64_t bytes{0};
  std::uint64_t remote{0};
  ucp_rkey_h key{nullptr};
  ucp_mem_h memory{nullptr};
  Ask ask{};            ///< for verbs=am: UCX reads it until it is sent
  bool awaited{false};  ///< its answer is pending
};

struct Request {
  std::shared_ptr<Peer> peer;
  std::uint64_t peer_handle{0};
  bool writes{true};
  std::vector<Operation> operations;
  std::vector<std::uint64_t> locals;
  std::uint64_t bytes{0};
  std::string notification;
  Operation control;  ///< stands for flush and notification in callbacks

  State state{State::prepared};
  std::uint64_t next{0};       ///< next operation to start
  std::uint64_t in_flight{0};  ///< of UCX, flush and notification included
  std::uint64_t landed{0};     ///< bytes of operations that completed (locally, for a put)
  std::uint64_t completed{0};  ///< number of those operations
  bool canceled{false};
  std::uint64_t token{0};     ///< of the latest post, for verbs=am: answers to an earlier one are ignored
  std::uint64_t awaited{0};   ///< answers
  std::uint64_t answered{0};  ///< since the post
  Failure failure;

  /// UCX has finished with it, and the peer will send nothing more.
  bool quiet() const { return in_flight == 0 && awaited == 0; }
  bool active() const { return state == State::moving || state == State::flushing || state == State::notifying; }
};

class UcxEngine final : public UcxMessages::Host {
 public:
  static constexpr const char* engine_name = "ucx";
  static const char* engine_version() { return ucp_get_version_string(); }

  explicit UcxEngine(const OpenArgs& args) {
    const std::string mode = args.take("error_handling", "peer");
    const std::string verbs = args.take("verbs", "rma");
    guard_ = args.take_switch("guard", "on");
    args.finish();
    if (mode != "peer" && mode != "none")
      throw Failure{KVCTS_E_INVALID, "error_handling is \"" + mode + "\", expected peer or none"};
    if (verbs != "rma" && verbs != "am") throw Failure{KVCTS_E_INVALID, "verbs is \"" + verbs + "\", expected rma or am"};
    peer_errors_ = mode == "peer";
    by_messages_ = verbs == "am";
    open();
    all().push_back(this);
  }
  ~UcxEngine() {
    for (int round = 0; round < 1000 && in_flight(); ++round) progress_all();
    std::erase(all(), this);
    if (in_flight()) {
      // A peer that never answers. UCX would still use these objects: they stay until the process ends.
      for (auto& [handle, request] : requests_) orphans_.push_back(std::move(request));
      new auto(std::move(orphans_));
      new auto(std::move(peers_));
      new auto(std::move(endpoints_));
      new auto(std::move(messages_));
      return;
    }
    expecting_.clear();  // messages may still arrive until the worker is destroyed
    requests_.clear();
    orphans_.clear();
    peers_.clear();  // destroy keys before the worker
    // The worker destroys its endpoints: closing them one by one would wait for peers that may be dead.
    ucp_worker_destroy(worker_);
    for (auto& [handle, region] : regions_) {
      if (region.memory != nullptr) ucp_mem_unmap(context_, region.memory);
    }
    ucp_cleanup(context_);
  }
  UcxEngine(const UcxEngine&) = delete;
  UcxEngine& operator=(const UcxEngine&) = delete;

  void claims(kvcts_claims& claims) const {
    claims.kinds = 1u << KVCTS_KIND_MEMORY;
    claims.memories = 1u << KVCTS_MEMORY_HOST;
    claims.reach = KVCTS_REACH_PROCESS | KVCTS_REACH_HOST | KVCTS_REACH_NETWORK;
    claims.can_write = claims.can_read = 1;
    claims.one_sided = 0;  // depends on UCX_TLS; nothing may rely on it
    claims.needs_target_progress = 1;
    claims.repeated_registration = claims.overlapping_registration = 1;
    claims.zero_length = 1;
    claims.unregistered_local = 1;
    claims.notifications = claims.notification_after_data = 1;
    claims.completion = KVCTS_COMPLETION_REMOTE;
    claims.ordering = KVCTS_ORDER_NONE;
    claims.cancellation = KVCTS_CANCEL_BEST_EFFORT;
    claims.peer_death = peer_errors_ ? KVCTS_DEATH_DURING : KVCTS_DEATH_UNNOTICED;
  }

  std::uint64_t register_region(const kvcts_region& raw) {
    if (raw.kind != KVCTS_KIND_MEMORY || raw.memory != KVCTS_MEMORY_HOST) {
      throw Failure{KVCTS_E_NOT_SUPPORTED, "this engine moves host memory only"};
    }
    if (guard_ && raw.address == nullptr && raw.bytes > 0) throw Failure{KVCTS_E_INVALID, "the region's address is NULL"};
    Region region{static_cast<std::byte*>(raw.address), raw.bytes, raw.access, nullptr};
    if (raw.bytes > 0) {
      ucp_mem_map_params_t params{};
      params.field_mask =
          UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
      params.address = raw.address;
      params.length = raw.bytes;
      params.memory_type = UCS_MEMORY_TYPE_HOST;
      check(ucp_mem_map(context_, &params, &region.memory), "ucp_mem_map");
    }
    return regions_.add(region);
  }

  void deregister_region(std::uint64_t handle) {
    const Region region = regions_.at(handle);
    const auto uses = [handle](const Request& request) {
      return !request.quiet() && std::count(request.locals.begin(), request.locals.end(), handle) > 0;
    };
    // UCX may still have to send the final answer to a peer whose request is complete.
    for (int round = 0; round < 1000 && messages_ && messages_->uses(handle); ++round) progress_all();
    sweep();
    const bool used =
        (messages_ && messages_->uses(handle)) ||
        std::any_of(orphans_.begin(), orphans_.end(), [&](const auto& request) { return uses(*request); }) ||
        std::any_of(requests_.begin(), requests_.end(), [&](const auto& entry) {
          return uses(*entry.second) || (entry.second->active() &&
                                         std::count(entry.second->locals.begin(), entry.second->locals.end(), handle) > 0);
        });
    if (used) throw Failure{KVCTS_E_BUSY, "operations on this region are still in flight"};
    if (region.memory != nullptr) check(ucp_mem_unmap(context_, region.memory), "ucp_mem_unmap");
    regions_.take(handle);
  }

  std::string export_metadata(std::span<const std::uint64_t> handles) {
    BlobWriter blob(blob_name());
    blob.value(id_);
    blob.text(address_);
    blob.value<std::uint64_t>(handles.size());
    for (const auto handle : handles) {
      const Region& region = regions_.at(handle);
      blob.value(reinterpret_cast<std::uint64_t>(region.address));
      blob.value(region.bytes);
      blob.value(region.access);
      blob.value(handle);
      if (region.memory == nullptr || by_messages_) {  // no key: only messages can reach it
        blob.text({});
        continue;
      }
      void* key = nullptr;
      std::size_t bytes = 0;
      check(ucp_rkey_pack(context_, region.memory, &key, &bytes), "ucp_rkey_pack");
      blob.text({static_cast<const char*>(key), bytes});
      ucp_rkey_buffer_release(key);
    }
    return blob.finish();
  }

  std::uint64_t add_peer(std::string_view metadata) {
    BlobReader blob(blob_name(), metadata);
    const auto id = blob.value<Id>();
    const std::string address(blob.text());
    auto peer = std::make_shared<Peer>();
    peer->endpoint = connect(id, address);
    const auto count = blob.value<std::uint64_t>();
    for (std::uint64_t i = 0; i < count; ++i) {
      RemoteRegion region;
      region.address = blob.value<std::uint64_t>();
      region.bytes = blob.value<std::uint64_t>();
      region.access = blob.value<std::uint32_t>();
      region.handle = blob.value<std::uint64_t>();
      const std::string key(blob.text());
      if (!key.empty()) check(ucp_ep_rkey_unpack(peer->endpoint->ep, key.data(), &region.key), "ucp_ep_rkey_unpack");
      peer->regions.push_back(region);
    }
    blob.end();
    return peers_.add(std::move(peer));
  }

  void remove_peer(std::uint64_t handle) {
    peers_.take(handle);
    for (auto& [id, request] : requests_) {
      if (request->peer_handle != handle) continue;
      fail(*request, {KVCTS_E_NOT_FOUND, "the peer of this request was removed"});
      forget(*request);
    }
  }

  std::uint64_t prepare(const kvcts_transfer& transfer) {
    if (transfer.op != KVCTS_OP_WRITE && transfer.op != KVCTS_OP_READ) {
      throw Failure{KVCTS_E_INVALID, "op is " + std::to_string(transfer.op) + ", expected 0 (write) or 1 (read)"};
    }
    auto request = std::make_unique<Request>();
    request->peer = peers_.at(transfer.peer);
    request->peer_handle = transfer.peer;
    request->writes = transfer.op == KVCTS_OP_WRITE;
    std::unordered_map<std::uint64_t, const Region*> locals;
    request->operations.reserve(transfer.count);
    for (std::uint64_t i = 0; i < transfer.count; ++i) {
      const kvcts_descriptor& d = transfer.descriptors[i];
      Operation operation{.request = request.get(), .local = reinterpret_cast<std::byte*>(d.local_offset), .bytes = d.bytes};
      if (d.local_region != KVCTS_NO_REGION) {
        const auto [known, fresh] = locals.try_emplace(d.local_region, nullptr);
        if (fresh) {
          known->second = &regions_.at(d.local_region);
          request->locals.push_back(d.local_region);
        }
        if (guard_) check_local(d, i, known->second->bytes);
        operation.local = known->second->address + d.local_offset;
        operation.memory = known->second->memory;
      }
      const RemoteRegion& remote = remote_region(request->peer->regions, d, i, request->writes, guard_);
      request->bytes += d.bytes;
      operation.remote = remote.address + d.remote_offset;
      operation.key = remote.key;
      operation.ask = {0, i, remote.handle, d.remote_offset, d.bytes};
      request->operations.push_back(operation);
    }
    if (transfer.notification != nullptr) {
      request->notification.assign(static_cast<const char*>(transfer.notification), transfer.notification_bytes);
    }
    return requests_.add(std::move(request));
  }

  std::int32_t post(std::uint64_t handle) {
    Request& request = *requests_.at(handle);
    if (request.active() || !request.quiet()) throw Failure{KVCTS_E_BUSY, "the request is still active"};
    if (peers_.find(request.peer_handle) == nullptr)
      throw Failure{KVCTS_E_NOT_FOUND, "the peer of this request was removed"};
    for (const auto local : request.locals) regions_.at(local);
    if (request.peer->endpoint->failed != UCS_OK) throw lost(request.peer->endpoint->failed);
    request.state = State::moving;
    request.next = request.landed = request.completed = 0;
    request.canceled = false;
    if (messages_) expect(request);
    advance(request);
    return answer(request);
  }

  std::int32_t poll(std::uint64_t handle, kvcts_progress& progress) {
    Request& request = *requests_.at(handle);
    if (request.state == State::prepared) throw Failure{KVCTS_E_NOT_POSTED, "the request was not posted"};
    if (request.active() || !request.quiet()) {
      // Over cma UCX 1.22 starts one copy per round: a caller that sleeps between polls must not sleep between copies.
      for (unsigned round = 0; round < rounds_a_poll && progress_all(); ++round) {
      }
      advance(request);
    }
    const bool done = request.state == State::done;
    progress.descriptors_done =
        done ? request.operations.size() : std::min<std::uint64_t>(request.completed, request.operations.size());
    progress.bytes_done = done ? request.bytes : request.landed;
    return answer(request);
  }

  void release(std::uint64_t handle) {
    auto request = requests_.take(handle);
    forget(*request);
    if (request->in_flight > 0) orphans_.push_back(std::move(request));  // its callbacks still come
  }

  std::int32_t cancel(std::uint64_t handle) {
    Request& request = *requests_.at(handle);
    if (request.state == State::prepared) throw Failure{KVCTS_E_NOT_POSTED, "the request was not posted"};
    if (request.active()) request.canceled = true;  // what UCX has already is not called back
    return KVCTS_OK;
  }

  bool progress() { return progress_all(); }

  std::int32_t flush(std::uint64_t handle) {
    Endpoint& endpoint = *peers_.at(handle)->endpoint;
    if (endpoint.failed != UCS_OK) throw lost(endpoint.failed);
    return KVCTS_OK;  // completion is remote already
  }

  void notify(std::uint64_t handle, std::string_view data) {
    // A separate, empty request; it is released immediately and ends by itself.
    auto request = std::make_unique<Request>();
    request->peer = peers_.at(handle);
    request->peer_handle = handle;
    request->notification = data;
    if (request->peer->endpoint->failed != UCS_OK) throw lost(request->peer->endpoint->failed);
    request->state = State::notifying;
    send_notification(*request);
    if (request->state == State::failed) throw request->failure;
    if (request->in_flight > 0) orphans_.push_back(std::move(request));
  }

  const std::string* oldest_notification() {
    progress_all();
    return inbox_.empty() ? nullptr : &inbox_.front();
  }
  void drop_notification() { inbox_.pop_front(); }

  std::map<std::string, std::string> facts() {
    std::map<std::string, std::string> facts{{"ucx_version", ucp_get_version_string()},
                                             {"error_handling", peer_errors_ ? "peer" : "none"},
                                             {"bytes_written", std::to_string(bytes_written_)},
                                             {"bytes_read", std::to_string(bytes_read_)},
                                             {"descriptors", std::to_string(descriptors_)},
                                             {"requests", std::to_string(completed_)},
                                             {"endpoints_opened", std::to_string(endpoints_opened_)}};
    if (const char* chosen = std::getenv("UCX_TLS"); chosen != nullptr) facts["ucx_tls"] = chosen;
    facts["verbs"] = by_messages_ ? "am" : "rma";
    if (messages_) {
      facts["messages_answered"] = std::to_string(answers_);
      facts["messages_served"] = std::to_string(messages_->served());
    }
    for (const auto& [id, endpoint] : endpoints_) {
      if (endpoint->failed == UCS_OK && endpoint.get() == latest_) path_facts(endpoint->ep, facts);
    }
    // Newer ones choose a protocol per size, and report it (UCX_PROTO_INFO, engine package).
    if (std::getenv("UCX_PROTO_INFO") != nullptr) {
      static UcxLog log;
      if (const auto path = log.path(by_messages_   ? UcxLog::message
                                     : last_writes_ ? UcxLog::put
                                                    : UcxLog::get);
          !path.transport.empty()) {
        facts["transport"] = path.transport;
        facts["protocol"] = path.protocol;
        if (!by_messages_)
          facts["emulated"] =
              path.protocol.find("software") != std::string::npos ? "yes: put and get by active messages" : "no";
      }
    }
    return facts;
  }

 private:
  using Id = std::array<std::uint64_t, 2>;

  static std::vector<UcxEngine*>& all() {
    static std::vector<UcxEngine*> engines;
    return engines;
  }

  void open() {
    if (getrandom(id_.data(), sizeof id_, 0) != static_cast<ssize_t>(sizeof id_))
      throw Failure{KVCTS_E_BACKEND, "getrandom failed"};
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = by_messages_ ? UCP_FEATURE_AM : UCP_FEATURE_RMA | UCP_FEATURE_AM;
    const ucs_status_t opened = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    check(opened, "ucp_init (is a transport of UCX_TLS present here?)");
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // calls come from one thread at a time, not always the same one
    if (const auto created = ucp_worker_create(context_, &worker, &worker_); created != UCS_OK) {
      ucp_cleanup(context_);
      throw ucx_failure(created, "ucp_worker_create");
    }
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                         UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    handler.id = notification_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.arg = this;
    handler.cb = [](void* self, const void*, std::size_t, void* data, std::size_t bytes, const ucp_am_recv_param_t*) {
      static_cast<UcxEngine*>(self)->inbox_.emplace_back(static_cast<const char*>(data), bytes);
      return UCS_OK;
    };
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    check(ucp_worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
    address_.assign(reinterpret_cast<const char*>(address), bytes);
    ucp_worker_release_address(worker_, address);
    probe();
    if (by_messages_) messages_ = std::make_unique<UcxMessages>(worker_, *this);
  }

  /// Opens an endpoint to this worker itself, to detect now, not at the first peer, that no transport of UCX_TLS
  /// supports the request. (UCX later reports "unreachable" both for this and for a peer that is gone.)
  void probe() {
    auto self = std::make_shared<Endpoint>();
    graveyard_.push_back(self);
    const ucs_status_t created = create(*self, address_);
    if (created == UCS_OK) return close(*self);
    const char* chosen = std::getenv("UCX_TLS");
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
    throw ucx_failure(created, std::string("UCX_TLS=") + (chosen ? chosen : "(default)") +
                                   " has no transport that supports error_handling=" +
                                   (peer_errors_ ? "peer; set it to none, or add tcp" : "none"));
  }

  ucs_status_t create(Endpoint& endpoint, const std::string& address) {
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = peer_errors_ ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    params.err_handler.arg = &endpoint;
    params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t status) { static_cast<Endpoint*>(arg)->failed = status; };
    return ucp_ep_create(worker_, &params, &endpoint.ep);
  }

  /// Does not wait; forces the close where UCX allows it.
  void close(Endpoint& endpoint) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = peer_errors_ ? UCP_EP_CLOSE_FLAG_FORCE : 0;
    void* closing = ucp_ep_close_nbx(endpoint.ep, &param);
    if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
    if (latest_ == &endpoint) latest_ = nullptr;
  }

  std::shared_ptr<Endpoint> connect(const Id& id, const std::string& address) {
    std::erase_if(endpoints_, [this](const auto& entry) {
      if (entry.second->failed == UCS_OK) return false;
      close(*entry.second);
      graveyard_.push_back(entry.second);
      return true;
    });
    auto& known = endpoints_[id];
    if (!known) {
      auto endpoint = std::make_shared<Endpoint>();
      const ucs_status_t created = create(*endpoint, address);
      if (created != UCS_OK) {
        endpoints_.erase(id);
        graveyard_.push_back(std::move(endpoint));
        throw created == UCS_ERR_UNREACHABLE ? lost(created) : ucx_failure(created, "ucp_ep_create");
      }
      ++endpoints_opened_;
      known = std::move(endpoint);
    }
    latest_ = known.get();
    return known;
  }

  bool progress_all() {
    bool worked = false;
    for (UcxEngine* engine : all()) worked = ucp_worker_progress(engine->worker_) != 0 || worked;
    sweep();
    return worked;
  }

  bool in_flight() {
    sweep();
    return !orphans_.empty() || (messages_ && !messages_->idle()) ||
           std::any_of(requests_.begin(), requests_.end(), [](const auto& entry) { return entry.second->in_flight > 0; });
  }

  void sweep() {
    std::erase_if(orphans_, [](const auto& request) { return request->in_flight == 0; });
  }

  static void fail(Request& request, Failure failure) {
    if (request.state == State::failed) return;
    request.state = State::failed;
    request.failure = std::move(failure);
  }

  static std::int32_t answer(const Request& request) {
    if (request.state == State::done) return KVCTS_OK;
    if (request.state == State::failed && request.quiet()) throw request.failure;
    return KVCTS_IN_PROGRESS;
  }

  static void land(const Operation& operation) {
    operation.request->landed += operation.bytes, ++operation.request->completed;
  }

  /// Takes back a UCX request. True: it succeeded.
  static bool ended(void* ucx_request, ucs_status_t status, Request& request) {
    --request.in_flight;
    if (status != UCS_OK)
      fail(request, request.peer->endpoint->failed != UCS_OK ? lost(status) : ucx_failure(status, "a transfer"));
    ucp_request_free(ucx_request);
    return status == UCS_OK;
  }

  static void completed(void* ucx_request, ucs_status_t status, void* user) {
    const auto& operation = *static_cast<Operation*>(user);
    if (ended(ucx_request, status, *operation.request)) land(operation);
  }

  /// Handles the return of an *_nbx call: finished, failed, or in flight.
  static void account(const Operation& operation, ucs_status_ptr_t returned, const char* what) {
    Request& request = *operation.request;
    if (UCS_PTR_IS_PTR(returned)) {
      ++request.in_flight;
    } else if (returned != nullptr) {
      fail(request, ucx_failure(UCS_PTR_STATUS(returned), what));
    } else {
      land(operation);
    }
  }

  static ucp_request_param_t parameters(Operation& operation) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = completed;
    param.user_data = &operation;
    return param;
  }

  void expect(Request& request) {
    request.token = next_token_++;
    request.answered = 0;
    expecting_[request.token] = &request;
  }
  /// Ignores answers that are still to come.
  void forget(Request& request) {
    expecting_.erase(request.token);
    request.awaited = 0;
  }

  void send_ask(Request& request, Operation& operation) {
    operation.ask.token = request.token;
    ucp_request_param_t param = parameters(operation);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_REPLY;
    param.cb.send = [](void* ucx_request, ucs_status_t status, void* user) {
      ended(ucx_request, status, *static_cast<Operation*>(user)->request);
    };
    operation.awaited = true, ++request.awaited;  // an agent answers itself immediately
    const ucs_status_ptr_t returned =
        ucp_am_send_nbx(request.peer->endpoint->ep, request.writes ? UcxMessages::put : UcxMessages::get, &operation.ask,
                        sizeof operation.ask, operation.local, request.writes ? operation.bytes : 0, &param);
    if (UCS_PTR_IS_ERR(returned)) {
      operation.awaited = false, --request.awaited;
      return fail(request, ucx_failure(UCS_PTR_STATUS(returned), "ucp_am_send_nbx"));
    }
    request.in_flight += UCS_PTR_IS_PTR(returned);
  }

  void* place_of(const Ask& ask, bool writes) override {
    const Region& region = regions_.at(ask.region);
    check_remote(region, ask.index, ask.offset, ask.bytes, writes);
    return region.address + ask.offset;
  }

  ucs_status_t answered(const Answer& answer, const Payload& payload) override {
    const auto known = expecting_.find(answer.token);
    if (known == expecting_.end() || answer.index >= known->second->operations.size()) return UCS_OK;
    Request& request = *known->second;
    Operation& operation = request.operations[answer.index];
    if (!operation.awaited) return UCS_OK;
    operation.awaited = false;
    --request.awaited, ++request.answered, ++answers_;
    const auto refuse = [&](std::int32_t status, const std::string& why) {
      fail(request, {status, "descriptor " + std::to_string(answer.index) + ": " + why});
      return UCS_OK;
    };
    if (answer.status != KVCTS_OK)
      return refuse(static_cast<std::int32_t>(answer.status), "the peer has no such range, or does not allow this access");
    if (request.writes) {
      land(operation);
      return UCS_OK;
    }
    if (payload.bytes != operation.bytes)
      return refuse(KVCTS_E_BACKEND, "the peer answered with " + std::to_string(payload.bytes) + " bytes");
    const auto arrived = [](void* ucx_request, ucs_status_t status, std::size_t, void* user) {
      completed(ucx_request, status, user);
    };
    const ucs_status_t status = payload.receive(worker_, operation.local, arrived, &operation);
    if (status == UCS_INPROGRESS) {
      ++request.in_flight;
      return UCS_INPROGRESS;
    }
    if (status == UCS_OK) {
      land(operation);
    } else {
      fail(request, ucx_failure(status, "ucp_am_recv_data_nbx"));
    }
    return UCS_OK;
  }

  /// Advances as far as possible without waiting.
  void advance(Request& request) {
    if (request.peer->endpoint->failed != UCS_OK) {
      if (request.active()) fail(request, lost(request.peer->endpoint->failed));
      forget(request);
      // With error handling, UCX completes what was in flight; without it, nothing ever completes.
    }
    if (request.state == State::moving) start_operations(request);
    if (request.state == State::flushing && request.quiet()) send_notification(request);
    if (request.state == State::notifying && request.in_flight == 0) finish(request);
  }

  void start_operations(Request& request) {
    std::uint64_t started = 0;
    while (request.next < request.operations.size() && !request.canceled && request.in_flight + request.awaited < window &&
           started < posted_a_round) {
      Operation& operation = request.operations[request.next];
      if (operation.bytes > 0 && messages_) {
        send_ask(request, operation);
        ++started;
      } else if (operation.bytes > 0) {
        ucp_request_param_t param = parameters(operation);
        if (operation.memory != nullptr) {
          param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
          param.memh = operation.memory;
        }
        ucp_ep_h ep = request.peer->endpoint->ep;
        account(operation,
                request.writes ? ucp_put_nbx(ep, operation.local, operation.bytes, operation.remote, operation.key, &param)
                               : ucp_get_nbx(ep, operation.local, operation.bytes, operation.remote, operation.key, &param),
                request.writes ? "ucp_put_nbx" : "ucp_get_nbx");
        ++started;
      }
      ++request.next;
      if (request.state == State::failed) return;
    }
    if (request.canceled && request.quiet()) {
      fail(request, {KVCTS_E_CANCELED, "cancelled after " + std::to_string(request.next) + " descriptors"});
      return;
    }
    if (request.canceled || request.next < request.operations.size()) return;
    if (!request.writes || request.operations.empty() || messages_) {
      if (!request.quiet()) return;  // a completed get has arrived, and an answered put is in place
      request.state = State::flushing;
      return;
    }
    request.state = State::flushing;
    request.control.request = &request;
    const ucp_request_param_t param = parameters(request.control);
    account(request.control, ucp_ep_flush_nbx(request.peer->endpoint->ep, &param), "ucp_ep_flush_nbx");
  }

  void send_notification(Request& request) {
    request.state = State::notifying;
    if (request.notification.empty()) return;
    request.control.request = &request;
    ucp_request_param_t param = parameters(request.control);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    account(request.control,
            ucp_am_send_nbx(request.peer->endpoint->ep, notification_id, nullptr, 0, request.notification.data(),
                            request.notification.size(), &param),
            "ucp_am_send_nbx");
  }

  void finish(Request& request) {
    if (const auto failure = other_path(request)) return fail(request, *failure);
    request.state = State::done;
    last_writes_ = request.writes;
    (request.writes ? bytes_written_ : bytes_read_) += request.bytes;
    descriptors_ += request.operations.size();
    ++completed_;
  }

  /// With verbs=am the peer itself answers each descriptor; no one answers put and get.
  std::optional<Failure> other_path(const Request& request) const {
    const auto moves = [](const Operation& operation) { return operation.bytes > 0; };
    const auto count =
        static_cast<std::uint64_t>(std::count_if(request.operations.begin(), request.operations.end(), moves));
    if (!by_messages_ || request.answered == count) return std::nullopt;
    return Failure{KVCTS_E_BACKEND, "the path was to be active messages; the peer answered " +
                                        std::to_string(request.answered) + " of " + std::to_string(count) + " descriptors"};
  }

  /// "rma#0" marks the lane of put and get; "rma_bw#0" serves only rendezvous, so cma next to posix does not make a
  /// put one-sided in 1.13. Lanes of an endpoint, from ucp_ep_print_info (the only source in 1.13): "lane[0]:
  /// 1:tcp/lo.0 md[1] -> ... am am_bw#0".
  void path_facts(ucp_ep_h ep, std::map<std::string, std::string>& facts) {
    char* text = nullptr;
    std::size_t bytes = 0;
    FILE* stream = open_memstream(&text, &bytes);
    if (stream == nullptr) return;
    ucp_ep_print_info(ep, stream);
    fclose(stream);
    std::istringstream lines(std::string(text, bytes));
    std::free(text);
    std::string line, direct, messages;
    while (std::getline(lines, line)) {
      const auto lane = line.find("lane[");
      const auto colon = lane == std::string::npos ? lane : line.find(':', lane);
      if (colon == std::string::npos) continue;
      std::istringstream words(line.substr(colon + 1));
      std::string device, word, uses;
      words >> device;
      while (words >> word) uses += word + " ";
      if (const auto index = device.find(':'); index != std::string::npos) device.erase(0, index + 1);
      facts["lane." + line.substr(lane + 5, line.find(']', lane) - lane - 5)] =
          device + " " + uses.substr(0, uses.find_last_not_of(' ') + 1);
      device.erase(std::min(device.rfind('.'), device.size()));  // of several paths through one device
      if (uses.find("rma#") != std::string::npos && direct.empty()) direct = device;
      if (uses.find(" am") != std::string::npos && messages.empty()) messages = device;
    }
    facts["transport"] = !direct.empty() ? direct : messages;
    if (!by_messages_) facts["emulated"] = direct.empty() ? "yes: put and get by active messages" : "no";
  }

  ucp_context_h context_{nullptr};
  ucp_worker_h worker_{nullptr};
  const char* blob_name() const { return by_messages_ ? "ucx/am" : engine_name; }

  bool peer_errors_{true}, guard_{true}, last_writes_{true}, by_messages_{false};
  Id id_{};
  std::string address_;
  Handles<Region> regions_{"region"};
  std::map<Id, std::shared_ptr<Endpoint>> endpoints_;  ///< by peer agent
  Endpoint* latest_{nullptr};
  std::vector<std::shared_ptr<Endpoint>> graveyard_;  ///< failed ones: UCX may still name them in callbacks
  Handles<std::shared_ptr<Peer>> peers_{"peer"};
  Handles<std::unique_ptr<Request>> requests_{"request"};
  std::list<std::unique_ptr<Request>> orphans_;  ///< released while in flight
  std::deque<std::string> inbox_;
  std::unique_ptr<UcxMessages> messages_;                  ///< with verbs=am
  std::unordered_map<std::uint64_t, Request*> expecting_;  ///< answers, by token
  std::uint64_t next_token_{1}, answers_{0};
  std::uint64_t bytes_written_{0}, bytes_read_{0}, descriptors_{0}, completed_{0}, endpoints_opened_{0};
};

}  // namespace
}  // namespace kvcts::engines

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::UcxEngine>(host_abi);
}
