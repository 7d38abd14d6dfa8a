// Engine memcpy: both sides in one process; the caller's own thread moves the bytes. The simplest engine and the
// baseline for the others. Metadata carries addresses; a blob from another process is refused.
#include <unistd.h>

#include <set>
#include <unordered_map>

#include "engines/support/copy_engine.hpp"

namespace kvcts::engines {
namespace {

class MemcpyEngine final : public CopyEngine {
 public:
  static constexpr const char* engine_name = "memcpy";
  static const char* engine_version() { return "1"; }

  explicit MemcpyEngine(const OpenArgs& args) : CopyEngine(engine_name) {
    args.finish();
    static std::uint64_t counter = 0;
    id_ = ++counter;
    agents().emplace(id_, this);
  }
  ~MemcpyEngine() override { agents().erase(id_); }

  void claims(kvcts_claims& claims) const override {
    CopyEngine::claims(claims);
    claims.reach = KVCTS_REACH_PROCESS;
  }

 protected:
  void keep(const kvcts_region&, LocalRegion& local) override {
    static std::uint64_t counter = 0;
    const std::uint64_t generation = ++counter;
    live_.insert(generation);
    local.extra = std::make_shared<std::uint64_t>(generation);
  }
  void forget(std::uint64_t, LocalRegion& local) override { live_.erase(generation(local)); }
  void write_agent(BlobWriter& blob) override {
    blob.value<std::int64_t>(getpid());
    blob.value(id_);
  }
  void write_region(BlobWriter& blob, std::uint64_t, const LocalRegion& local) override {
    blob.value(local.address);
    blob.value(generation(local));
  }
  std::shared_ptr<Reach> read_agent(BlobReader& blob) override {
    const auto process = blob.value<std::int64_t>();
    if (process != getpid()) {
      throw Failure{KVCTS_E_NOT_SUPPORTED,
                    "memcpy works within one process; the peer is process " + std::to_string(process)};
    }
    const auto id = blob.value<std::uint64_t>();
    if (!agents().contains(id)) throw Failure{KVCTS_E_PEER_LOST, "the peer's agent was closed"};
    return std::make_shared<Neighbour>(id);
  }
  RemoteRegion read_region(BlobReader& blob, Reach&) override {
    RemoteRegion region;
    region.address = blob.value<std::byte*>();
    region.generation = blob.value<std::uint64_t>();
    return region;
  }

 private:
  struct Neighbour final : Reach {
    explicit Neighbour(std::uint64_t agent) : id(agent) {}
    MemcpyEngine* agent() const {
      const auto found = agents().find(id);
      return found == agents().end() ? nullptr : found->second;
    }
    bool alive() override { return agent() != nullptr; }
    bool live(const RemoteRegion& region) override {
      return agent() != nullptr && agent()->live_.contains(region.generation);
    }
    void send(std::string_view notification) override { agent()->inbox_.emplace_back(notification); }
    std::uint64_t id;
  };
  static std::unordered_map<std::uint64_t, MemcpyEngine*>& agents() {
    static std::unordered_map<std::uint64_t, MemcpyEngine*> all;
    return all;
  }
  static std::uint64_t generation(const LocalRegion& local) { return *static_cast<std::uint64_t*>(local.extra.get()); }

  std::uint64_t id_{0};
  std::set<std::uint64_t> live_;  ///< generations of currently registered regions
};

}  // namespace
}  // namespace kvcts::engines

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::MemcpyEngine>(host_abi);
}
