// Plug-in front: stands in front of another engine's plug-in, named by KVCTS_FRONT_OF, and is wrong in one way from
// the rows of faults.hpp (options front.fault, front.n, ...; all other options go to the engine). Name, version,
// claims, facts and errors are the engine's, and every call is forwarded; the front moves no byte of a list itself:
//   - a row about lists edits the list in prepare(): the engine really moves the wrong list, and counts it
//   - a row that changes bytes copies the sources of a write into its own memory, changes them there and lets the
//   engine send those; bytes of a read are changed where they arrived
//   - extra writes or reads at the peer are separate requests through the engine
//   - a change that would leave a region is dropped or undone: every engine refuses it, and then nothing wrong would
//   go through the engine
//   - late bytes may be sent after the case is over, so registrations and peers are released to the engine after that
// Both sides of a case have it in front, because metadata carries the sizes of regions.
#include <algorithm>
#include <deque>

#include "engines/sabotage/delayed_writes.hpp"
#include "engines/sabotage/region_table.hpp"
#include "engines/support/handles.hpp"

namespace kvcts::engines::sabotage {
namespace {

constexpr const char* prefix = "front.";

/// One lock for all agents: some engines serve every agent of the process in each call.
std::mutex& calls() {
  static std::mutex lock;
  return lock;
}
using Lock = std::lock_guard<std::mutex>;

enum class Stage { prepared, moving, following, done };

struct Request {
  explicit Request(const Real& engine) : real(engine) {}
  ~Request() {
    if (id != 0) Real::api().release(real.get(), id);
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const Real& real;
  std::uint64_t id{0}, peer{0};            ///< at the engine behind the front
  std::uint64_t bytes{0}, descriptors{0};  ///< requested
  bool wrong{false};                       ///< false: pass everything through
  bool writes{true};
  FaultMoves moves;
  std::unique_ptr<Staging> staging;  ///< source of the changed bytes
  std::vector<kvcts_descriptor> list;
  Stage stage{Stage::prepared};
  bool owed{false};                             ///< reported complete, but not posted yet
  std::unique_ptr<ProxyRequest> proxy_request;  ///< follows the list
};

class InjectorProxy final : PeerMemory {
 public:
  static constexpr const char* engine_name = "front";
  static const char* engine_version() { return "1"; }

  explicit InjectorProxy(const OpenArgs& args)
      : wrong_(take_wrong(args, prefix)), real_(args.name, args.role, args.rest()), delayed_writes_(calls(), [this] {
          if (Real::api().progress != nullptr) Real::api().progress(real_.get());
        }) {
    wrong_.job.memory = this;
    kvcts_claims own{};
    claims(own);
    // After its own connection ends and until its peer's ends, no other caller makes progress for the engine behind it.
    if (fault().until == Until::remove_peer || fault().until == Until::deregister)
      throw Failure{KVCTS_E_NOT_SUPPORTED, "fault " + std::string(fault().name) + " replaces an engine only"};
    if (fault().both_ways && (own.can_read == 0 || own.can_write == 0))
      throw Failure{KVCTS_E_NOT_SUPPORTED, "fault " + std::string(fault().name) +
                                               " needs an engine that reads and writes; " + behind().engine() +
                                               " does not " + (own.can_read == 0 ? "read" : "write")};
  }

  void claims(kvcts_claims& claims) const {
    claims.size = sizeof claims;
    real_(&kvcts_transport::claims, &claims);
    if (fault().several) claims.max_descriptors = std::min(claims.max_descriptors, static_cast<std::uint64_t>(wrong_.job.n));
  }

  std::uint64_t register_region(kvcts_region region) {
    const Lock lock(calls());
    region.size = sizeof region;
    std::uint64_t handle = 0;
    real_(&kvcts_transport::register_region, static_cast<const kvcts_region*>(&region), &handle);
    region_table_.add(handle, region.address, region.bytes);
    return handle;
  }
  void deregister_region(std::uint64_t handle) {
    const Lock lock(calls());
    if (!comes_late()) real_(&kvcts_transport::deregister_region, handle);
    region_table_.remove(handle);
    if (comes_late()) give_back_delayed(&kvcts_transport::deregister_region, handle);
  }

  std::string export_metadata(std::span<const std::uint64_t> handles) {
    const Lock lock(calls());
    BlobWriter blob(engine_name);
    blob.value<std::uint64_t>(handles.size());
    for (const auto handle : handles) blob.value(region_table_.bytes(handle));
    std::string own(4096, '\0');
    for (std::uint64_t bytes = own.size();; bytes = own.size()) {
      const std::int32_t status =
          Real::api().export_metadata(real_.get(), handles.data(), handles.size(), own.data(), &bytes);
      own.resize(bytes);
      if (status == KVCTS_E_TOO_SMALL) continue;
      real_status(real_.get(), status);
      break;
    }
    blob.text(own);
    return blob.finish();
  }
  std::uint64_t add_peer(std::string_view metadata) {
    const Lock lock(calls());
    BlobReader blob(engine_name, metadata);
    std::vector<std::uint64_t> bytes(blob.value<std::uint64_t>());
    for (auto& one : bytes) one = blob.value<std::uint64_t>();
    const std::string_view own = blob.text();
    blob.end();
    std::uint64_t peer = 0;
    real_(&kvcts_transport::add_peer, static_cast<const void*>(own.data()), std::uint64_t{own.size()}, &peer);
    region_table_.add_peer(peer, bytes);
    wrong_.job.request = 0;  // each connection starts with a first request
    return peer;
  }
  void remove_peer(std::uint64_t peer) {
    const Lock lock(calls());
    if (!comes_late()) real_(&kvcts_transport::remove_peer, peer);
    region_table_.remove_peer(peer);
    if (comes_late()) give_back_delayed(&kvcts_transport::remove_peer, peer);
  }

  std::uint64_t prepare(kvcts_transfer transfer) {
    const Lock lock(calls());
    transfer.size = sizeof transfer;
    auto request = std::make_shared<Request>(real_);
    request->peer = transfer.peer;
    request->descriptors = transfer.count;
    for (std::uint64_t i = 0; i < transfer.count; ++i) request->bytes += transfer.descriptors[i].bytes;
    if (auto moves = region_table_.moves(transfer); moves && fault().name != "none")
      edit(*request, std::move(*moves), transfer);
    real_(&kvcts_transport::prepare, static_cast<const kvcts_transfer*>(&transfer), &request->id);
    return requests_.add(std::move(request));
  }

  std::int32_t post(std::uint64_t handle) {
    const Lock lock(calls());
    const std::shared_ptr<Request> request = requests_.at(handle);
    if (!request->wrong) return real_(&kvcts_transport::post, request->id);
    if (request->stage == Stage::moving || request->stage == Stage::following)
      throw Failure{KVCTS_E_BUSY, "the request is still active"};
    if (fault().early) {
      request->stage = Stage::done;
      if (fault().until == Until::release)
        request->owed = true;
      else
        post_delayed(request);
      return KVCTS_OK;
    }
    if (request->staging != nullptr) fill(*request);
    const std::int32_t status = real_(&kvcts_transport::post, request->id);
    request->stage = Stage::moving;
    return advance(*request, status);
  }

  std::int32_t poll(std::uint64_t handle, kvcts_progress& progress) {
    const Lock lock(calls());
    Request& request = *requests_.at(handle);
    progress.size = sizeof progress;
    std::int32_t status = KVCTS_OK;
    if (request.stage == Stage::following) {
      status = advance(request, request.proxy_request->poll());
    } else if (request.stage != Stage::done) {
      status = real_(&kvcts_transport::poll, request.id, &progress);
      if (!request.wrong) return status;
      status = advance(request, status);
    }
    // Reports about the requested list what correct code would report.
    const bool over = request.stage != Stage::moving;
    const auto reported = [&](std::uint64_t& done, std::uint64_t asked) {
      if (over || done != KVCTS_UNKNOWN) done = over ? asked : std::min(done, asked);
    };
    reported(progress.bytes_done, request.bytes), reported(progress.descriptors_done, request.descriptors);
    return status;
  }

  void release(std::uint64_t handle) {
    const Lock lock(calls());
    const std::shared_ptr<Request> request = requests_.take(handle);
    if (request->owed) move_now(*request);
    if (request.use_count() == 1) real_(&kvcts_transport::release, std::exchange(request->id, 0));
  }

  std::int32_t descriptor_status(std::uint64_t handle, std::uint64_t index) {
    const Lock lock(calls());
    const Request& request = *requests_.at(handle);
    if (!request.wrong || request.stage == Stage::prepared)
      return real_(&kvcts_transport::descriptor_status, request.id, index);
    if (index >= request.descriptors)
      throw Failure{KVCTS_E_NOT_FOUND, "the request has no descriptor " + std::to_string(index)};
    return request.stage == Stage::done ? KVCTS_OK : KVCTS_IN_PROGRESS;
  }
  std::int32_t cancel(std::uint64_t handle) {
    const Lock lock(calls());
    return real_(&kvcts_transport::cancel, requests_.at(handle)->id);
  }
  bool progress() {
    const Lock lock(calls());
    return real_(&kvcts_transport::progress) == KVCTS_IN_PROGRESS;
  }
  std::int32_t flush(std::uint64_t peer) {
    const Lock lock(calls());
    return real_(&kvcts_transport::flush, peer);
  }
  void notify(std::uint64_t peer, std::string_view data) {
    const Lock lock(calls());
    real_(&kvcts_transport::notify, peer, static_cast<const void*>(data.data()), std::uint64_t{data.size()});
  }
  const std::string* oldest_notification() {
    const Lock lock(calls());
    if (inbox_.empty()) {
      std::string data(KVCTS_LONGEST_NOTIFICATION, '\0');
      std::uint64_t bytes = data.size();
      const std::int32_t status = Real::api().take_notification(real_.get(), data.data(), &bytes);
      if (status == KVCTS_E_NOT_FOUND) return nullptr;
      real_status(real_.get(), status);
      inbox_.push_back(data.substr(0, bytes));
    }
    return &inbox_.front();
  }
  void drop_notification() { inbox_.pop_front(); }

  std::map<std::string, std::string> facts() {
    const Lock lock(calls());
    std::map<std::string, std::string> facts{{"front_fault", std::string(fault().name)},
                                             {"front_asked_bytes", std::to_string(asked_bytes_)},
                                             {"front_asked_descriptors", std::to_string(asked_descriptors_)}};
    const kvcts_fact_sink sink = [](void* all, const char* key, const char* value) {
      (*static_cast<std::map<std::string, std::string>*>(all))[key] = value;
    };
    real_(&kvcts_transport::facts, sink, static_cast<void*>(&facts));
    return facts;
  }

  static void canary(const OpenArgs& args) {
    take_wrong(args, prefix);
    const transport::OpenOptions options{args.name, static_cast<transport::Role>(args.role), args.rest()};
    real_status(nullptr, Real::api().canary(transport::OpenArgs(options).get()));
  }

 private:
  const Fault& fault() const { return *wrong_.fault; }
  bool comes_late() const { return fault().late || (fault().early && fault().until == Until::delay); }

  /// What a row reads: this side's memory, or the peer's through the engine.
  std::vector<std::vector<std::byte>> read(std::span<const ByteRange> extents) override {
    std::vector<Piece> pieces;
    for (const ByteRange& extent : extents) {
      if (extent.bytes > 0 && region_table_.host(extent.address) == nullptr)
        pieces.push_back(region_table_.piece(extent.address, extent.bytes));
    }
    std::optional<ProxyRequest> proxy_request;
    if (!pieces.empty()) proxy_request.emplace(real_, peer_, KVCTS_OP_READ, pieces).wait();
    const std::byte* there = proxy_request ? proxy_request->data() : nullptr;
    std::vector<std::vector<std::byte>> out;
    for (const ByteRange& extent : extents) {
      const std::byte* here = extent.bytes > 0 ? region_table_.host(extent.address) : nullptr;
      const std::byte* begin = here != nullptr ? here : there;
      out.emplace_back(begin, begin + extent.bytes);
      if (here == nullptr) there += extent.bytes;
    }
    return out;
  }

  void edit(Request& request, FaultMoves moves, kvcts_transfer& transfer) {
    asked_bytes_ += request.bytes, asked_descriptors_ += request.descriptors;
    request.wrong = true;
    request.writes = transfer.op == KVCTS_OP_WRITE;
    request.moves = std::move(moves);
    peer_ = transfer.peer;
    region_table_.show(peer_, wrong_.job);
    if (fault().edit != nullptr) {
      FaultMoves edited = request.moves;
      fault().edit(edited, wrong_.job);
      const auto fits = [this](const FaultMove& move) {
        return region_table_.holds(move.from, move.bytes) && region_table_.holds(move.to, move.bytes);
      };
      if (std::all_of(edited.begin(), edited.end(), fits)) request.moves = std::move(edited);
    }
    ++wrong_.job.request;
    RegionTable::List list = region_table_.list(request.moves, transfer.op);
    request.list = std::move(list.descriptors);
    if (fault().change != nullptr && request.writes) {
      request.staging = std::make_unique<Staging>(real_, bytes_of(request.moves));
      std::uint64_t at = 0;
      for (auto& one : request.list) {
        one.local_region = request.staging->handle(), one.local_offset = at;
        at += one.bytes;
      }
    }
    transfer.op = list.op;
    transfer.descriptors = request.list.data();
    transfer.count = request.list.size();
  }

  /// What a list delivers, end to end: its sources, or where it arrived here.
  std::vector<std::byte> delivered(const Request& request) const {
    std::vector<std::byte> bytes;
    for (const FaultMove& move : request.moves) {
      const std::byte* here = region_table_.host(request.writes ? move.from : move.to);
      bytes.insert(bytes.end(), here, here + move.bytes);
    }
    return bytes;
  }
  /// The bytes that should arrive.
  std::vector<std::byte> changed(const Request& request) {
    std::vector<std::byte> bytes = delivered(request), right = bytes;
    fault().change(request.moves, bytes, wrong_.job);
    wrong_.job.previous = std::move(right);
    return bytes;
  }
  void fill(const Request& request) {
    const std::vector<std::byte> bytes = changed(request);
    std::copy(bytes.begin(), bytes.end(), request.staging->data());
  }

  /// Handles the engine's status, and what follows its OK.
  std::int32_t advance(Request& request, std::int32_t status) {
    if (status != KVCTS_OK) return status;
    if (request.stage == Stage::moving) {
      request.stage = Stage::done;
      region_table_.show(request.peer, wrong_.job);
      if (fault().change != nullptr && !request.writes) {
        const std::vector<std::byte> bytes = changed(request);
        auto next = bytes.begin();
        for (const FaultMove& move : request.moves) {
          const auto end = next + static_cast<std::ptrdiff_t>(move.bytes);
          std::copy(next, end, region_table_.host(move.to));
          next = end;
        }
      }
      if (fault().after != nullptr) write(request, fault().after(request.moves, delivered(request), wrong_.job));
      if (request.proxy_request == nullptr) return KVCTS_OK;
      request.stage = Stage::following;
      status = request.proxy_request->post();
    }
    if (status != KVCTS_OK) return status;
    request.proxy_request.reset();
    request.stage = Stage::done;
    return KVCTS_OK;
  }

  /// Extra writes: here immediately, at the peer by a following request; or all of them late.
  void write(Request& request, ExtraWrites writes) {
    std::vector<Piece> pieces;
    std::vector<std::byte> there;
    for (ExtraWrite& one : writes) {
      if (one.bytes.empty() || !region_table_.holds(one.to, one.bytes.size())) continue;
      if (std::byte* here = region_table_.host(one.to); here == nullptr) {
        pieces.push_back(region_table_.piece(one.to, one.bytes.size()));
        there.insert(there.end(), one.bytes.begin(), one.bytes.end());
      } else if (!fault().late) {
        std::copy(one.bytes.begin(), one.bytes.end(), here);
      } else {
        delayed_writes_.add(wrong_.delay, [here, bytes = std::move(one.bytes)] {
          std::copy(bytes.begin(), bytes.end(), here);
          return true;
        });
      }
    }
    if (pieces.empty()) return;
    auto proxy_request = std::make_unique<ProxyRequest>(real_, request.peer, KVCTS_OP_WRITE, pieces);
    std::copy(there.begin(), there.end(), proxy_request->data());
    if (!fault().late) {
      request.proxy_request = std::move(proxy_request);
    } else {
      delayed_writes_.add(
          wrong_.delay, [proxy_request = std::shared_ptr<ProxyRequest>(std::move(proxy_request)), posted = false]() mutable {
            return (std::exchange(posted, true) ? proxy_request->poll() : proxy_request->post()) == KVCTS_OK;
          });
    }
  }

  /// Reported complete now, moved later.
  void post_delayed(std::shared_ptr<Request> request) {
    delayed_writes_.add(wrong_.delay, [this, request = std::move(request), posted = false]() mutable {
      kvcts_progress* const unreported = nullptr;
      const std::int32_t status = std::exchange(posted, true) ? real_(&kvcts_transport::poll, request->id, unreported)
                                                              : real_(&kvcts_transport::post, request->id);
      return status == KVCTS_OK;
    });
  }

  void move_now(Request& request) {
    kvcts_progress* const unreported = nullptr;
    for (std::int32_t status = real_(&kvcts_transport::post, request.id); status == KVCTS_IN_PROGRESS;)
      status = real_(&kvcts_transport::poll, request.id, unreported);
  }

  /// For a region or a peer that a late operation still needs.
  void give_back_delayed(std::int32_t (*kvcts_transport::*call)(kvcts_agent*, std::uint64_t), std::uint64_t handle) {
    delayed_writes_.add(2 * wrong_.delay, [this, call, handle] { return real_(call, handle) == KVCTS_OK; });
  }

  InjectedFault wrong_;
  Real real_;
  RegionTable region_table_;
  std::uint64_t peer_{0};  ///< whose memory a row reads
  std::uint64_t asked_bytes_{0}, asked_descriptors_{0};
  std::deque<std::string> inbox_;
  Handles<std::shared_ptr<Request>> requests_{"request"};
  DelayedWrites delayed_writes_;
};

/// The front's calls under the engine's name; calls that the engine lacks are also missing here.
kvcts_transport make_table() {
  const kvcts_transport& real = behind().table();
  kvcts_transport table = *engines::table<InjectorProxy>(KVCTS_TRANSPORT_ABI);
  table.name = behind().engine().c_str();
  table.version = behind().version().c_str();
  const auto as_real = [&](auto call) {
    if (real.*call == nullptr) table.*call = nullptr;
  };
  as_real(&kvcts_transport::descriptor_status), as_real(&kvcts_transport::cancel), as_real(&kvcts_transport::progress);
  as_real(&kvcts_transport::flush), as_real(&kvcts_transport::notify), as_real(&kvcts_transport::take_notification);
  as_real(&kvcts_transport::facts), as_real(&kvcts_transport::canary);
  return table;
}

}  // namespace
}  // namespace kvcts::engines::sabotage

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  if (host_abi != KVCTS_TRANSPORT_ABI) return nullptr;
  try {
    static const kvcts_transport table = kvcts::engines::sabotage::make_table();
    return &table;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvcts_engine_front: %s\n", error.what());
    return nullptr;
  }
}
