// Engine nixl-posix: every byte goes through a file, like a KV cache offloaded to storage: NIXL's POSIX backend
// writes the initiator's memory to a file and reads the file into the peer's memory. The peer's memory is mapped as
// in engine shm; NIXL moves the bytes.
//
// A request takes its pieces of the file in reverse order, so that no file offset equals a memory offset. Sources: as
// library.hpp; DRAM <-> FILE, descriptors of a file are (offset, length, descriptor), the remote agent is the agent
// itself.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "engines/nixl/objects.hpp"
#include "engines/support/shared_memory.hpp"

namespace kvcts::engines::nixl {
namespace {

/// The agent, and the file that all bytes pass through.
struct Store {
  std::string name;
  Agent agent{nullptr};
  Backend backend{nullptr};
  File file;
  std::uint64_t used{0}, written{0}, read{0};  ///< bytes of the file in use; bytes written and read
};

/// One request under way, piece by piece: to the file, then from it.
class Run {
 public:
  Run(Store& store, std::span<const Move> moves) : store_(store) {
    for (const Move& move : moves) {
      if (move.bytes > 0) moves_.push_back(move);
      bytes_ += move.bytes;
    }
    base_ = store_.used;
    store_.used += bytes_;
    if (ftruncate(store_.file.get(), static_cast<off_t>(store_.used)) != 0) {
      throw Failure{KVCTS_E_NO_RESOURCES, std::string("cannot extend the file: ") + std::strerror(errno), errno};
    }
    if (!moves_.empty()) begin(NixlOp::write, 0);
  }
  ~Run() { end(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  bool advance() {
    if (moves_.empty()) return true;
    const NixlStatus status = library().status(store_.agent, request_);
    if (status == NixlStatus::in_progress) return false;
    check(status, op_ == NixlOp::write ? "writing the file" : "reading the file");
    (op_ == NixlOp::write ? store_.written : store_.read) += piece_bytes_;
    end();
    const std::size_t next = first_ + piece_;
    if (op_ == NixlOp::read && next == moves_.size()) return true;
    // Write everything before reading anything.
    if (next < moves_.size()) {
      begin(op_, next);
    } else {
      begin(NixlOp::read, 0);
    }
    return false;
  }

 private:
  /// Starts at move `first`, with as many moves as the backend takes at once.
  void begin(NixlOp op, std::size_t first) {
    op_ = op, first_ = first, piece_ = std::min(most_at_once, moves_.size() - first), piece_bytes_ = 0;
    if (first == 0) end_of_piece_ = base_ + bytes_;
    Transfers memory(NixlMemory::dram), file(NixlMemory::file);
    memory_ = std::make_unique<Registration>(NixlMemory::dram);
    place_ = std::make_unique<Registration>(NixlMemory::file);
    const auto descriptor = static_cast<std::uint64_t>(store_.file.get());
    for (std::size_t i = first; i < first + piece_; ++i) {
      const Move& move = moves_[i];
      const auto address = reinterpret_cast<std::uint64_t>(op == NixlOp::write ? move.from : move.to);
      end_of_piece_ -= move.bytes;
      piece_bytes_ += move.bytes;
      memory.add(address, move.bytes);
      memory_->add(address, move.bytes);
      file.add(end_of_piece_, move.bytes, descriptor);
    }
    place_->add(base_, bytes_, descriptor);
    const CallOptions options(store_.backend);
    check(library().register_memory(store_.agent, memory_->get(), options.get()), "registration of memory");
    check(library().register_memory(store_.agent, place_->get(), options.get()), "registration of the file");
    // For an agent's own storage the "remote" agent is the agent itself, whose metadata it has.
    check(library().create_request(store_.agent, op, memory.get(), file.get(), store_.name, request_, options.get()),
          "create_request");
    const NixlStatus posted = library().post(store_.agent, request_, options.get());
    if (posted != NixlStatus::success && posted != NixlStatus::in_progress) throw failure(posted, "post");
  }

  void end() {
    if (request_ != nullptr) {
      // Releasing an active request of this backend crashes the process (SIGSEGV, 1.5.1). Files always complete: wait.
      const auto late = std::chrono::steady_clock::now() + patience;
      NixlStatus status = library().status(store_.agent, request_);
      for (; status == NixlStatus::in_progress && std::chrono::steady_clock::now() < late;
           status = library().status(store_.agent, request_))
        usleep(100);
      if (status != NixlStatus::in_progress && library().release_request(store_.agent, request_) == 0)
        library().destroy_request(request_);
      request_ = nullptr;
    }
    const CallOptions options(store_.backend);
    for (auto* list : {&memory_, &place_}) {
      if (*list) library().deregister_memory(store_.agent, (*list)->get(), options.get());
      list->reset();
    }
  }

  static constexpr std::size_t most_at_once = 16384;  // 100,000 are refused (NIXL_ERR_NOT_ALLOWED)
  static constexpr std::chrono::seconds patience{10};

  Store& store_;
  std::vector<Move> moves_;
  std::uint64_t bytes_{0}, base_{0}, end_of_piece_{0}, piece_bytes_{0};
  std::size_t first_{0}, piece_{0};
  NixlOp op_{NixlOp::write};
  Request request_{nullptr};
  std::unique_ptr<Registration> memory_, place_;
};

class PosixEngine final : public SharedMemoryEngine {
 public:
  static constexpr const char* engine_name = "nixl-posix";
  static const char* engine_version() { return package_version(); }

  explicit PosixEngine(const OpenArgs& args) : SharedMemoryEngine(engine_name, args) {
    api_ = args.take("api", "default");
    const std::string folder = args.take("folder", "/tmp");
    args.finish();
    std::vector<std::pair<std::string, std::string>> params;
    if (api_ == "aio" || api_ == "uring" || api_ == "posix_aio") {
      params.emplace_back("use_" + api_, "true");
    } else if (api_ != "default") {
      throw Failure{KVCTS_E_INVALID, "api is \"" + api_ + "\", expected default, aio, uring or posix_aio"};
    }
    store_.name = args.name + "/" + std::to_string(getpid()) + "." + std::to_string(++opened());
    nixl::check(library().create_agent(store_.name, Config{false, false, 0, 0, 1, 0, 0, false}, store_.agent),
                "cannot create an agent");
    if (const NixlStatus made = library().create_backend(store_.agent, "POSIX", params, store_.backend);
        made != NixlStatus::success) {
      library().destroy_agent(store_.agent);
      throw failure(made, "cannot create the POSIX backend with api=" + api_);
    }
    store_.file = File(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (std::string name = folder + "/kvcts-nixl-XXXXXX"; store_.file.get() < 0) {  // some file systems lack unnamed files
      store_.file = File(mkostemp(name.data(), O_CLOEXEC));
      unlink(name.c_str());
    }
    if (store_.file.get() < 0) {
      library().destroy_agent(store_.agent);
      throw Failure{KVCTS_E_NOT_SUPPORTED, "cannot create a file in " + folder + ": " + std::string(std::strerror(errno)),
                    errno};
    }
  }
  ~PosixEngine() override {
    running_.clear();
    library().destroy_agent(store_.agent);
  }

  void claims(kvcts_claims& claims) const override {
    SharedMemoryEngine::claims(claims);
    claims.cancellation = KVCTS_CANCEL_QUIET;  // waits for operations that have begun
  }

  std::map<std::string, std::string> facts() override {
    auto facts = SharedMemoryEngine::facts();
    facts["package"] = chosen_package();
    facts["transport"] = "file/" + api_;
    facts["file_bytes_written"] = std::to_string(store_.written);
    facts["file_bytes_read"] = std::to_string(store_.read);
    return facts;
  }

 protected:
  bool moves_by_itself(std::span<const Move> moves) override {
    running_[moves.data()] = std::make_unique<Run>(store_, moves);
    return true;
  }
  bool may_complete(std::span<const Move> moves) override {
    const auto run = running_.find(moves.data());
    if (run == running_.end() || !run->second->advance()) return run == running_.end();
    drop(moves);
    return true;
  }
  void abandon(std::span<const Move> moves) override { drop(moves); }

 private:
  void drop(std::span<const Move> moves) {
    running_.erase(moves.data());
    if (running_.empty()) store_.used = 0;
  }
  static unsigned& opened() {
    static unsigned count = 0;
    return count;
  }

  std::string api_;
  Store store_;
  std::map<const Move*, std::unique_ptr<Run>> running_;
};

}  // namespace
}  // namespace kvcts::engines::nixl

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::nixl::PosixEngine>(host_abi);
}
