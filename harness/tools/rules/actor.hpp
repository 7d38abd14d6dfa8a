// One side of a rule: an agent of the engine, its memory, and the things of it that have names.
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

/// Memory of a side; mapped before the processes part, so each can look at both.
struct Memory {
  int fd{-1};
  std::uint8_t* bytes{nullptr};
};
/// Of all of its bytes.
std::uint64_t sum(const Memory& memory);
/// What byte `at` of a side's memory holds at the beginning: no shift, swap or other side goes unseen.
std::uint8_t initial(bool of_target, std::size_t at);

/// How a side is opened. `memory`: stem or file of a memory provider; "": the side's own memory file is registered.
struct ActorSetup {
  std::string plugin, memory;
  std::map<std::string, std::string> options;
};

class Actor {
 public:
  Actor(bool target, const ActorSetup& setup, const Memory& memory);

  transport::Session& session() { return session_; }
  /// One round of what an event loop does: progress, and a look at every request that is under way. True: there was work.
  bool turn();
  /// What the other side of the same process does meanwhile; none where that is a process of its own.
  std::function<void()> meanwhile;
  /// The provider's bytes are brought into the side's memory file, where they can be looked at.
  void collect();
  std::uint64_t sum() const { return rules::sum(memory_); }
  /// Steps that one side does alone. The answer: "ok", "done", "pending", "came", or the name of the error.
  std::string act(const catalogue::RuleStep& step);
  std::string blob(const std::vector<std::string>& regions);
  std::string connect(const std::string& peer, const std::string& blob, const std::vector<std::string>& regions);
  /// "arrived", "untouched" or "partly", by looking at the copies of a request. `places`: where regions of the target begin
  /// in its memory.
  std::string check(const std::string& request, const Memory& there, const std::map<std::string, std::size_t>& places) const;
  /// "untouched" or "changed": every byte of either side that no request was to write.
  std::string others(const Memory& there, const std::map<std::string, std::size_t>& places) const;
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
    std::string op;
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
  Memory memory_;
  std::unique_ptr<transport::MemoryPool> pool_;
  std::unique_ptr<transport::Block> block_;  ///< of all of the side's memory, where a provider brings it
  transport::Session session_;
  std::set<transport::RequestId> active_;
  std::map<std::string, Place> regions_;
  std::map<std::string, Peer> peers_;
  std::map<std::string, Asked> requests_;
  std::string words_;
};

}  // namespace kvcts::rules
