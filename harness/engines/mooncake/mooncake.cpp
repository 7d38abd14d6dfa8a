// Engine mooncake: Mooncake's Transfer Engine over tcp, in this process and without Python, from an engine package
// (KVCTS_ENGINE_PACKAGE, e.g. "mooncake-0.3.13.post1"). Accepts only versions known to library.cpp, and only after a
// correct test transfer.
//
// Why it works this way:
//   - Requests of one batch beyond Mooncake's queue (1024 and 1024 more by default) fail or stay pending forever (rule M12).
//     So a list is sent in batches of `window` requests, the next one when the last has settled. window=0 sends the whole
//     list at once.
//   - One failed task ends nothing: the request fails when every task of its batch has ended and the batch is freed. Bytes
//     that arrive later arrive after Mooncake itself reported the end.
//   - Mooncake has no cancel. A batch released while it runs is kept until it settles; its regions stay busy that long.
//   - guard=on (default) checks what Mooncake does not: access, ranges, lengths of zero. guard=off passes everything
//     through, so that the rules table sees Mooncake itself.
//   - A task reports only FAILED. Probing its port shows whether the peer is gone, the clock whether a limit passed.
//   - The two sides may run different versions: consumer_package names another package for the consumer.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "engines/mooncake/library.hpp"
#include "engines/mooncake/listens.hpp"
#include "engines/support/blob.hpp"
#include "engines/support/descriptors.hpp"
#include "engines/support/handles.hpp"
#include "engines/support/peer_fault.hpp"
#include "engines/support/table.hpp"
#include "engines/support/tcp_path.hpp"
#include "engines/transport/packages.hpp"

namespace kvcts::engines::mooncake {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::uint64_t default_window = 1024;  // size of Mooncake's own queue
constexpr auto patience_at_close = 2s;          // for batches released while running

/// Options that set Mooncake's variables, so that a case may vary them.
constexpr std::pair<const char*, const char*> settings[] = {{"status_timeout", "MC_TCP_STATUS_TIMEOUT_SEC"},
                                                            {"progress_timeout", "MC_TCP_PROGRESS_TIMEOUT_SEC"},
                                                            {"queue", "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER"}};

std::string chosen_package() {
  const char* chosen = std::getenv(transport::package_variable);
  return chosen != nullptr ? chosen : "";
}

/// The one library of this process. Throws Failure(KVCTS_E_NOT_SUPPORTED).
const MooncakeLibrary& library(const std::string& package) {
  static std::string loaded;
  if (package.empty())
    throw Failure{KVCTS_E_NOT_SUPPORTED, std::string(transport::package_variable) + " names no engine package"};
  if (!loaded.empty() && loaded != package) {
    throw Failure{KVCTS_E_NOT_SUPPORTED,
                  "this process runs " + loaded + " already; " + package + " needs a separate process"};
  }
  const auto folder = transport::package_folder(package);
  if (folder.empty()) throw Failure{KVCTS_E_NOT_SUPPORTED, transport::package_missing(package)};
  static const MooncakeLibrary library(folder);
  loaded = package;
  return library;
}

/// Mooncake's own limit on a stalled transfer, from its variables.
std::chrono::seconds stall_limit() {
  auto least = 30s;
  for (const char* variable : {"MC_TCP_STATUS_TIMEOUT_SEC", "MC_TCP_PROGRESS_TIMEOUT_SEC"}) {
    if (const char* value = std::getenv(variable); value != nullptr && std::atoi(value) > 0) {
      least = std::min(least, std::chrono::seconds(std::atoi(value)));
    }
  }
  return least;
}

struct Region {
  std::uint64_t address{0}, bytes{0};
  std::uint32_t access{0};
};

struct Peer {
  std::string name;  ///< "127.0.0.1:15011"
  pid_t process{0};  ///< if it runs on this host
  Segment segment{no_segment};
  std::vector<Region> regions;
};

struct Piece {
  std::uint64_t local{0}, remote{0}, bytes{0};
};

/// A batch under way, with what Mooncake may read until it has settled.
struct Running {
  Batch batch{no_batch};
  Requests requests;
  std::vector<std::uint64_t> bytes;  ///< per task
  std::size_t settled{0};            ///< tasks before this one have ended
  std::set<std::uint64_t> locals;    ///< regions in use
  std::optional<Failure> failure;    ///< of the first failed task
};

enum class State { prepared, active, done, failed };

struct Transfer {
  std::shared_ptr<Peer> peer;
  std::uint64_t peer_handle{0};
  bool writes{true};
  std::set<std::uint64_t> locals;
  std::vector<Piece> pieces;
  std::uint64_t bytes{0}, descriptors{0};
  State state{State::prepared};
  Failure failure;
  std::size_t next{0};  ///< next piece to send
  std::uint64_t moved{0}, completed{0};
  std::unique_ptr<Running> running;
  Clock::time_point since;  ///< start of the running batch
  TcpSockets before;
};

class MooncakeEngine {
 public:
  static constexpr const char* engine_name = "mooncake";
  /// The package's. A consumer with another package reports it among its facts.
  static const char* engine_version() {
    static const std::string version = transport::package_version(chosen_package());
    return version.c_str();
  }

  explicit MooncakeEngine(const OpenArgs& args) : peer_fault_(args) {
    const char* own = std::getenv("KVCTS_ADDRESS");  // of this host, where the peer is on another
    const std::string address = args.take("address", own == nullptr ? "127.0.0.1" : own);
    window_ = args.take_number("window", default_window);
    guard_ = args.take_switch("guard", "on");
    const std::string ends = args.take("ends", "all");
    if (ends != "all" && ends != "first") throw Failure{KVCTS_E_INVALID, "ends is \"" + ends + "\", expected all or first"};
    ends_with_first_ = ends == "first";
    const std::string consumer = args.take("consumer_package", "");
    const std::string second = args.take("second_transport", "");
    package_ = args.role == KVCTS_ROLE_CONSUMER && !consumer.empty() ? consumer : chosen_package();
    for (const auto& [option, variable] : settings) {
      if (const std::string value = args.take(option, ""); !value.empty()) setenv(variable, value.c_str(), 1);
    }
    args.finish();
    library_ = &library(package_);
    engine_ = std::make_unique<Engine>(*library_, address);
    static bool tested = false;
    if (!tested) engine_->test_itself();
    tested = true;
    if (!second.empty())
      library_->install_transport(engine_->get(), second, nullptr);  // its success is not reported; the next calls show
                                                                     // it (rule M9)
  }
  ~MooncakeEngine() {
    for (auto& [handle, transfer] : transfers_) leave(*transfer);
    for (const auto end = Clock::now() + patience_at_close; !reap() && Clock::now() < end;)
      std::this_thread::sleep_for(100us);
    if (!left_.empty()) engine_->abandon();  // ending an engine with tasks in it would wait for the peer
    for (auto& running : left_) [[maybe_unused]]
      Running* kept = running.release();
  }
  MooncakeEngine(const MooncakeEngine&) = delete;
  MooncakeEngine& operator=(const MooncakeEngine&) = delete;

  void claims(kvcts_claims& claims) const {
    claims.kinds = 1u << KVCTS_KIND_MEMORY;
    claims.memories = 1u << KVCTS_MEMORY_HOST;
    claims.reach = KVCTS_REACH_PROCESS | KVCTS_REACH_HOST | KVCTS_REACH_NETWORK;
    claims.can_write = claims.can_read = 1;  // threads of the target's process take part, its calls do not
    claims.zero_length = 1;
    claims.unregistered_local = 1;                // rule M4: over tcp; over RDMA it would have to be registered
    claims.completion = KVCTS_COMPLETION_REMOTE;  // acknowledged since 0.3.12
    claims.ordering = KVCTS_ORDER_NONE;
    claims.cancellation =
        KVCTS_CANCEL_NONE;  // no notifications either: Mooncake sends them in a call that waits for the peer's answer
    claims.peer_death = KVCTS_DEATH_DURING;
  }

  std::uint64_t register_region(const kvcts_region& raw) {
    if (raw.kind != KVCTS_KIND_MEMORY || raw.memory != KVCTS_MEMORY_HOST) {
      throw Failure{KVCTS_E_NOT_SUPPORTED, "this engine moves host memory only"};
    }
    if (guard_ && raw.address == nullptr && raw.bytes > 0) throw Failure{KVCTS_E_INVALID, "the region's address is NULL"};
    const Region region{reinterpret_cast<std::uint64_t>(raw.address), raw.bytes, raw.access};
    if (region.bytes > 0 || !guard_) {
      const int code =
          library_->register_memory(engine_->get(), raw.address, raw.bytes, "cpu:0", raw.access != KVCTS_ACCESS_LOCAL, true);
      if (code != 0) throw native("registration", code);
    }
    return regions_.add(region);
  }

  void deregister_region(std::uint64_t handle) {
    const Region region = regions_.at(handle);
    reap();
    const auto uses = [&](const Running* running) { return running != nullptr && running->locals.contains(handle); };
    const bool busy =
        std::any_of(left_.begin(), left_.end(), [&](const auto& running) { return uses(running.get()); }) ||
        std::any_of(transfers_.begin(), transfers_.end(), [&](const auto& one) { return uses(one.second->running.get()); });
    if (busy) throw Failure{KVCTS_E_BUSY, "a transfer that uses the region has not settled; Mooncake has no cancel"};
    if (region.bytes > 0 || !guard_) {
      const int code = library_->unregister_memory(engine_->get(), reinterpret_cast<void*>(region.address), true);
      if (code != 0) throw native("deregistration", code);
    }
    regions_.take(handle);
  }

  std::string export_metadata(std::span<const std::uint64_t> handles) {
    BlobWriter blob(engine_name);
    blob.text(engine_->name());
    blob.value<std::int64_t>(getpid());
    blob.value<std::uint64_t>(handles.size());
    for (const auto handle : handles) blob.value(regions_.at(handle));
    return blob.finish();
  }

  std::uint64_t add_peer(std::string_view metadata) {
    BlobReader blob(engine_name, metadata);
    auto peer = std::make_shared<Peer>();
    peer->name = blob.text();
    const auto process = blob.value<std::int64_t>();
    peer->process = static_cast<pid_t>(process);
    peer->regions.resize(blob.value<std::uint64_t>());
    for (auto& region : peer->regions) region = blob.value<Region>();
    blob.end();
    peer->segment = library_->open_segment(engine_->get(), peer->name);
    if (peer->segment == no_segment) {
      throw Failure{listens(peer->name) ? KVCTS_E_BACKEND : KVCTS_E_PEER_LOST,
                    "Mooncake cannot open the segment of " + peer->name, -1};
    }
    // Mooncake caches what it knows about a name; another process may have that port now.
    if (const auto [known, fresh] = processes_.try_emplace(peer->name, process); !fresh && known->second != process) {
      library_->sync_segments(engine_->get(), peer->name);
      known->second = process;
    }
    return peers_.add(std::move(peer));
  }

  void remove_peer(std::uint64_t handle) {
    peers_.take(handle);
    for (auto& [id, transfer] : transfers_) {
      if (transfer->peer_handle == handle) fail(*transfer, {KVCTS_E_NOT_FOUND, "the peer of this request was removed"});
    }
  }

  std::uint64_t prepare(const kvcts_transfer& raw) {
    if (raw.op != KVCTS_OP_WRITE && raw.op != KVCTS_OP_READ) {
      throw Failure{KVCTS_E_INVALID, "op is " + std::to_string(raw.op) + ", expected 0 (write) or 1 (read)"};
    }
    auto transfer = std::make_unique<Transfer>();
    transfer->peer = peers_.at(raw.peer);
    transfer->peer_handle = raw.peer;
    transfer->writes = raw.op == KVCTS_OP_WRITE;
    transfer->descriptors = raw.count;
    if (raw.notification != nullptr) throw Failure{KVCTS_E_NOT_SUPPORTED, "this engine sends no notifications"};
    transfer->pieces.reserve(raw.count);
    for (std::uint64_t i = 0; i < raw.count; ++i) add(*transfer, raw.descriptors[i], i);
    return transfers_.add(std::move(transfer));
  }

  std::int32_t post(std::uint64_t handle) {
    Transfer& transfer = *transfers_.at(handle);
    if (transfer.state == State::active) throw Failure{KVCTS_E_BUSY, "the request is still active"};
    if (peers_.find(transfer.peer_handle) == nullptr)
      throw Failure{KVCTS_E_NOT_FOUND, "the peer of this request was removed"};
    for (const auto local : transfer.locals) regions_.at(local);
    transfer.state = State::active;
    transfer.next = transfer.moved = transfer.completed = 0;
    transfer.before = tcp_sockets();
    peer_fault_.before_post(transfer.peer->process);
    return advance(transfer);
  }

  std::int32_t poll(std::uint64_t handle, kvcts_progress& progress) {
    Transfer& transfer = *transfers_.at(handle);
    if (transfer.state == State::prepared) throw Failure{KVCTS_E_NOT_POSTED, "the request was not posted"};
    if (transfer.state == State::failed) throw transfer.failure;
    const std::int32_t status = transfer.state == State::done ? KVCTS_OK : advance(transfer);
    progress.bytes_done = transfer.moved;
    progress.descriptors_done = status == KVCTS_OK ? transfer.descriptors : transfer.completed;
    return status;
  }

  void release(std::uint64_t handle) {
    const auto transfer = transfers_.take(handle);
    leave(*transfer);
    reap();
  }

  std::map<std::string, std::string> facts() {
    return {{"package", package_},
            {"transport", proven_ ? "tcp" : "not proven yet"},
            {"self_test", "passed"},
            {"window", std::to_string(window_)},
            {"bytes_written", std::to_string(bytes_written_)},
            {"bytes_read", std::to_string(bytes_read_)},
            {"descriptors", std::to_string(descriptors_)},
            {"requests", std::to_string(completed_)},
            {"batches", std::to_string(batches_)},
            {"engine_bytes", std::to_string(engine_bytes_)},
            {"tcp_bytes", std::to_string(tcp_bytes_)},
            {"stale_counts", std::to_string(stale_counts_)},
            {"unsettled_batches", std::to_string(left_.size())}};
  }

 private:
  static Failure native(const std::string& what, std::int64_t code) {
    // error.h: -1 invalid argument, -3 address not registered, -7 address overlapped
    const std::int32_t status = code == -7 || code == -1 ? KVCTS_E_INVALID
                                : code == -3             ? KVCTS_E_NOT_FOUND
                                                         : KVCTS_E_BACKEND;
    const char* words = code == -7   ? ": the range overlaps one that is registered"
                        : code == -1 ? ": invalid argument"
                        : code == -3 ? ": not registered"
                                     : "";
    return {status, what + ": Mooncake answered " + std::to_string(code) + words, code};
  }
  static Failure native(const std::string& what, const MooncakeStatus& status) {
    const std::int32_t code = status.code == 1   ? KVCTS_E_INVALID
                              : status.code == 2 ? KVCTS_E_NO_RESOURCES
                              : status.code == 4 ? KVCTS_E_BUSY
                              : status.code == 8 ? KVCTS_E_NOT_SUPPORTED
                                                 : KVCTS_E_BACKEND;
    return {code, what + ": Mooncake answered " + describe(status), status.code};
  }

  void add(Transfer& transfer, const kvcts_descriptor& d, std::uint64_t index) {
    std::uint64_t from = d.local_offset;
    if (d.local_region != KVCTS_NO_REGION) {
      const Region& region = regions_.at(d.local_region);
      transfer.locals.insert(d.local_region);
      if (guard_) check_local(d, index, region.bytes);
      from += region.address;
    }
    const Region& there = remote_region(transfer.peer->regions, d, index, transfer.writes, guard_);
    if (guard_ && d.bytes == 0) return;
    transfer.bytes += d.bytes;
    transfer.pieces.push_back({from, there.address + d.remote_offset, d.bytes});
  }

  /// Polls the running batch; sends the next one once it has settled.
  std::int32_t advance(Transfer& transfer) {
    reap();
    while (transfer.state == State::active) {
      if (transfer.running == nullptr) {
        if (transfer.next == transfer.pieces.size()) {
          finish(transfer);
          break;
        }
        send(transfer);
      }
      if (transfer.state != State::active) break;
      const bool settled = look(transfer);
      if (transfer.state != State::active) break;
      peer_fault_.at(transfer.peer->process, transfer.completed, transfer.pieces.size());
      if (!settled) return KVCTS_IN_PROGRESS;
    }
    peer_fault_.ended(transfer.peer->process);
    if (transfer.state == State::failed) throw transfer.failure;
    return KVCTS_OK;
  }

  void send(Transfer& transfer) {
    const std::size_t rest = transfer.pieces.size() - transfer.next;
    const std::size_t count = window_ == 0 ? rest : std::min<std::size_t>(window_, rest);
    auto running = std::make_unique<Running>(Running{no_batch, Requests(library_->version), {}, 0, transfer.locals, {}});
    running->requests.reserve(count);
    running->bytes.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const Piece& piece = transfer.pieces[transfer.next + i];
      running->requests.add(transfer.writes ? MooncakeOp::write : MooncakeOp::read, piece.local, transfer.peer->segment,
                            piece.remote, piece.bytes);
      running->bytes.push_back(piece.bytes);
    }
    running->batch = library_->allocate_batch(engine_->get(), count);
    if (running->batch == no_batch)
      return fail(transfer, {KVCTS_E_NO_RESOURCES, "Mooncake provided no batch for " + std::to_string(count) + " requests"});
    transfer.since = Clock::now();
    const MooncakeStatus status = library_->submit(engine_->get(), running->batch, running->requests.words());
    transfer.running = std::move(running);
    transfer.next += count;
    ++batches_;
    if (status.code != 0) fail(transfer, native("submit", status));
  }

  /// True: every task of the batch has ended, and the batch is freed. The transfer gets the first failure once all
  /// have ended (ends=all) or immediately (ends=first): then the others continue, because they cannot be recalled.
  bool look(Transfer& transfer) {
    Running& running = *transfer.running;
    if (ends_with_first_ && any_failed(transfer)) return false;
    for (; running.settled < running.bytes.size(); ++running.settled) {
      TaskStatus task{};
      const MooncakeStatus asked = library_->task_status(engine_->get(), running.batch, running.settled, task);
      if (asked.code != 0) {
        fail(transfer, native("status", asked));
        return false;
      }
      if (task.state == TaskState::waiting || task.state == TaskState::pending) return false;
      if (task.state != TaskState::completed) {
        if (!running.failure) running.failure = ended(transfer, running.settled, task);
        continue;
      }
      // Read bytes before the state: at the first query a COMPLETED task may still report 0.
      if (task.bytes != running.bytes[running.settled]) {
        ++stale_counts_;
        library_->task_status(engine_->get(), running.batch, running.settled, task);
      }
      engine_bytes_ += task.bytes;
      if (task.bytes != running.bytes[running.settled] && !running.failure) {
        running.failure = {KVCTS_E_BACKEND, "Mooncake counted " + std::to_string(task.bytes) + " bytes for a request of " +
                                                std::to_string(running.bytes[running.settled])};
      }
      transfer.moved += task.bytes;
      ++transfer.completed;
    }
    const MooncakeStatus freed = library_->free_batch(engine_->get(), running.batch);
    const auto failed = running.failure;
    transfer.running.reset();
    if (failed) fail(transfer, *failed);
    if (freed.code != 0) fail(transfer, native("freeing a batch", freed));
    return true;
  }

  /// ends=first: a failed request after others that are still under way counts, too.
  bool any_failed(Transfer& transfer) {
    const Running& running = *transfer.running;
    for (std::size_t i = running.settled; i < running.bytes.size(); ++i) {
      TaskStatus task{};
      const MooncakeStatus asked = library_->task_status(engine_->get(), running.batch, i, task);
      const bool fine =
          task.state == TaskState::waiting || task.state == TaskState::pending || task.state == TaskState::completed;
      if (asked.code == 0 && fine) continue;
      fail(transfer, asked.code != 0 ? native("status", asked) : ended(transfer, i, task));
      return true;
    }
    return false;
  }

  /// Translates the end of a task.
  Failure ended(const Transfer& transfer, std::size_t index, const TaskStatus& task) const {
    const auto taken = std::chrono::duration<double>(Clock::now() - transfer.since);
    const std::string what = "request " + std::to_string(index) + " of a batch of " +
                             std::to_string(transfer.running->bytes.size()) + " ended as " + std::string(name(task.state)) +
                             " after " + std::to_string(taken.count()).substr(0, 5) + " s";
    const auto code = static_cast<std::int64_t>(task.state);
    if (task.state == TaskState::canceled) return {KVCTS_E_CANCELED, what, code};
    if (task.state == TaskState::invalid) return {KVCTS_E_INVALID, what, code};
    if (!listens(transfer.peer->name))
      return {KVCTS_E_PEER_LOST, what + "; no process listens at " + transfer.peer->name + " any more", code};
    // Mooncake reports only FAILED when one of its limits has passed.
    if (task.state == TaskState::timeout || taken > stall_limit() * 0.95)
      return {KVCTS_E_TIMED_OUT, what + "; the peer stands still", code};
    return {KVCTS_E_BACKEND, what + "; the peer is there: it refused the range, or a queue was full", code};
  }

  static void fail(Transfer& transfer, Failure failure) {
    if (transfer.state == State::failed) return;
    transfer.state = State::failed;
    transfer.failure = std::move(failure);
  }

  void finish(Transfer& transfer) {
    transfer.state = State::done;
    if (transfer.bytes > 0 && guard_) prove(transfer);
    if (transfer.state != State::done) return;
    (transfer.writes ? bytes_written_ : bytes_read_) += transfer.bytes;
    descriptors_ += transfer.descriptors;
    ++completed_;
  }

  /// Fails the request unless, by the kernel's count, the bytes went over TCP connections of this process.
  void prove(Transfer& transfer) {
    const TcpBytes tcp = tcp_bytes_since(transfer.before);
    const std::uint64_t over_tcp = transfer.writes ? tcp.sent : tcp.received;
    tcp_bytes_ += over_tcp;
    proven_ = over_tcp >= transfer.bytes;
    if (!proven_) {
      fail(transfer,
           {KVCTS_E_BACKEND, "expected the path tcp; only " + std::to_string(over_tcp) + " of " +
                                 std::to_string(transfer.bytes) + " bytes went over the TCP connections that are open now"});
    }
  }

  /// Keeps a running batch until it settles.
  void leave(Transfer& transfer) {
    if (transfer.running != nullptr) left_.push_back(std::move(transfer.running));
  }

  /// Frees batches that have settled. True: none is left.
  bool reap() {
    std::erase_if(left_, [&](const auto& running) {
      for (; running->settled < running->bytes.size(); ++running->settled) {
        TaskStatus task{};
        const MooncakeStatus asked = library_->task_status(engine_->get(), running->batch, running->settled, task);
        if (asked.code == 0 && (task.state == TaskState::waiting || task.state == TaskState::pending)) return false;
      }
      return library_->free_batch(engine_->get(), running->batch).code == 0;
    });
    return left_.empty();
  }

  std::string package_;
  PeerFault peer_fault_;
  std::uint64_t window_{default_window};
  bool guard_{true}, proven_{false}, ends_with_first_{false};
  const MooncakeLibrary* library_{nullptr};
  std::unique_ptr<Engine> engine_;
  Handles<Region> regions_{"region"};
  Handles<std::shared_ptr<Peer>> peers_{"peer"};
  Handles<std::unique_ptr<Transfer>> transfers_{"request"};
  std::map<std::string, std::int64_t> processes_;  ///< of each opened name
  std::vector<std::unique_ptr<Running>> left_;     ///< released while running
  std::uint64_t bytes_written_{0}, bytes_read_{0}, descriptors_{0}, completed_{0}, batches_{0}, engine_bytes_{0},
      tcp_bytes_{0}, stale_counts_{0};
};

}  // namespace
}  // namespace kvcts::engines::mooncake

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::mooncake::MooncakeEngine>(host_abi);
}
