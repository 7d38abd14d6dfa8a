// Rules of engines (cases/rules): how an engine behaves at the limits of its contract, step by step through the transport
// ABI, and each engine version's known answers. reports/results/engine-edges.md defines the steps; harness/tools/rules
// plays them. Claims of engines (cases/claims) play the same way: what must be seen when an engine makes the claim.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "case/catalogue/fields.hpp"
#include "case/direction.hpp"

namespace kvcts::catalogue {

/// One piece of a request: bytes between a region of the initiator and one of the target.
struct RuleCopy {
  std::string local{"local"}, remote{"remote"};  ///< names of regions; local may be the word nobody: never registered memory
  std::int64_t local_at{0}, remote_at{0}, bytes{4096};
  std::int64_t times{1};  ///< > 1: repeated, each `bytes` further on
  std::string limit;      ///< the engine's claim replaces `times`, `bytes`, or moves both offsets
  bool over{false};       ///< one more than that; for alignment: half
};

struct RuleStep {
  std::string action, as;
  std::string side{"initiator"};
  Direction op{};
  std::string region, peer{"peer"}, request{"request"}, blob{"whole"}, state, memory{"host"}, kind{"memory"}, access{"all"},
      notification;
  std::int64_t at{0}, bytes{1 << 20}, address{-1}, amount{0}, within_ms{1000};
  std::vector<std::string> regions{"remote"};
  std::vector<RuleCopy> copies{RuleCopy{}};
};

struct RuleEntry {
  std::string id, title, known_as, explain, advice;
  std::string prelude{"pair"};
  json options = json::object(), environment = json::object();  ///< prepended to those of the engine's entry; null removes
  std::vector<RuleStep> steps;
  std::map<std::string, std::vector<std::string>> expect;  ///< engine -> what is seen; several: each is correct (racy)
  bool once{false};            ///< waits for the engines' own limits: played once where others are played often
  std::string timed, promise;  ///< the timed step; the source of its time limit
  std::map<std::string, std::int64_t> promised_ms;  ///< engine -> time limit of that step
  std::string notes, file;
  std::string claim;                                      ///< which claim; "always": the header demands it of every engine
  std::map<std::string, std::vector<std::string>> holds;  ///< the claim's value -> what may be seen
  std::string beyond;                                     ///< the part of the claim that no test on this machine could
                                                          ///< refute
  std::map<std::string, std::string> when;                ///< applies only when these claims have these values
};

const Table<RuleStep>& rule_step_table();
const Table<RuleEntry>& rule_table();
const Table<RuleEntry>& claim_table();

}  // namespace kvcts::catalogue
