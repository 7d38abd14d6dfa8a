// One side of a rule: an agent of the engine, its memory, and the things of it that have names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "catalogue/rule_table.hpp"
#include "transport/session.hpp"

namespace kvcts::rules {

inline constexpr std::size_t memory_bytes = 4 << 20;  ///< of each side

/// Memory of a side; mapped before the processes part, so each can look at both.
struct Memory {
  int fd{-1};
  std::uint8_t* bytes{nullptr};
};
/// What byte `at` of a side's memory holds at the beginning: no shift, swap or other side goes unseen.
std::uint8_t initial(bool of_target, std::size_t at);

class Actor {
 public:
  Actor(bool target, const std::string& plugin, const std::map<std::string, std::string>& options, const Memory& memory);

  transport::Session& session() { return session_; }
  /// Steps that one side does alone. The answer: "ok", "done", "pending", "came", or the name of the error.
  std::string act(const catalogue::RuleStep& step);
  std::string blob(const std::vector<std::string>& regions);
  std::string connect(const std::string& peer, const std::string& blob, const std::vector<std::string>& regions);
  /// "arrived", "untouched" or "partly", by looking at the copies of a request. `places`: where regions of the target begin in its memory.
  std::string check(const std::string& request, const Memory& there, const std::map<std::string, std::size_t>& places) const;
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
  void prepare(const catalogue::RuleStep& step);
  std::string wait(const catalogue::RuleStep& step);

  Memory memory_;
  transport::Session session_;
  std::map<std::string, Place> regions_;
  std::map<std::string, Peer> peers_;
  std::map<std::string, Asked> requests_;
  std::string words_;
};

}  // namespace kvcts::rules
