// One side of a rule: an agent of the engine, its memory, and its named things.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "case/catalogue/rule_table.hpp"
#include "engines/transport/memory.hpp"

namespace kvcts::rules {

inline constexpr std::size_t memory_bytes = 4 << 20;  ///< of each side

/// Memory of a side, mapped before the processes fork, so that each can read both.
struct ActorMemory {
  int fd{-1};
  std::uint8_t* bytes{nullptr};
  int other_fd{-1};              ///< what exchange() puts in its place
  std::uint8_t* other{nullptr};  ///< that, mapped; then, the memory before
  std::uint64_t sum_before{0};   ///< of the memory before; 0: not exchanged
};
/// Other memory at the same address, in this process; its bytes are those of initial(), inverted. Does nothing twice.
void exchange(ActorMemory& memory);
/// Checksum of all of its bytes.
std::uint64_t sum(const ActorMemory& memory);
/// Initial value of byte `at` of a side's memory; it shows every shift, swap or mix-up of sides.
std::uint8_t initial(bool of_target, std::size_t at);

/// How to open a side. `memory`: stem or file of a memory provider; "": registers the side's own memory file.
struct ActorSetup {
  std::string plugin, memory;
  std::map<std::string, std::string> options;
};

class Actor {
 public:
  Actor(bool target, const ActorSetup& setup, const ActorMemory& memory);

  transport::Session& session() { return session_; }
  /// One round of an event loop: progress, and a poll of every request under way. True: there was work.
  bool turn();
  /// Runs the other side in the same process meanwhile; empty if that side is a separate process.
  std::function<void()> meanwhile;
  /// Copies the provider's bytes into the side's memory file, where they can be compared.
  void collect();
  std::uint64_t sum() const { return rules::sum(memory_); }
  /// Performs a step of one side. Returns "ok", "done", "pending", "came", or the name of the error.
  std::string act(const catalogue::RuleStep& step);
  std::string blob(const std::vector<std::string>& regions);
  std::string connect(const std::string& peer, const std::string& blob, const std::vector<std::string>& regions);
  /// Compares the bytes of a request's copies: "arrived", "untouched" or "partly". `places`: where the target's
  /// regions begin in its memory.
  std::string check(const std::string& request, const ActorMemory& there,
                    const std::map<std::string, std::size_t>& places) const;
  /// "untouched" or "changed": every byte on either side outside all requests.
  std::string others(const ActorMemory& there, const std::map<std::string, std::size_t>& places) const;
  const std::string& words() const { return words_; }

 private:
  struct Place {
    transport::RegionId id{0};
    std::size_t at{0};
  };
  struct Peer {
    transport::PeerId id{0};
    std::vector<std::string> regions;
  };
  struct Asked {
    transport::RequestId id{0};
    Direction op{};
    std::vector<catalogue::RuleCopy> copies;
  };
  template <class Call>
  std::string answer(Call&& call);
  transport::OpenOptions open_options(const std::string& name) const;
  std::vector<transport::Descriptor> descriptors(const catalogue::RuleStep& step, const Peer& peer);
  void prepare(const catalogue::RuleStep& step);
  bool start(transport::RequestId request);
  std::string register_region(const catalogue::RuleStep& step);
  std::string threads(const catalogue::RuleStep& step);
  std::string reopen();
  std::string wait(const catalogue::RuleStep& step);

  bool target_;
  ActorSetup setup_;
  ActorMemory memory_;
  std::unique_ptr<transport::MemoryPool> pool_;
  std::unique_ptr<transport::Block> block_;  ///< all of the side's memory, if a provider supplies it
  transport::Session session_;
  std::set<transport::RequestId> active_;
  std::map<std::string, Place> regions_;
  std::map<std::string, Peer> peers_;
  std::map<std::string, Asked> requests_;
  std::string words_;
};

}  // namespace kvcts::rules
