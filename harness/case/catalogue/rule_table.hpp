// Rules of engines (cases/rules): how an engine behaves at the edges of what it promises, step by step through the transport
// ABI, and what each engine and version is known to answer. Meaning of the steps: reports/rules.md; they are played by
// harness/tools/rules. Claims of engines (cases/claims) are played in the same way: what must be seen where an engine says
// so of itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "case/catalogue/fields.hpp"

namespace kvcts::catalogue {

/// One piece of a request: bytes between a region of the initiator and one of the target.
struct RuleCopy {
  std::string local{"local"},
      remote{"remote"};  ///< names of regions; local may be "nobody": memory that was never registered
  std::int64_t local_at{0}, remote_at{0}, bytes{4096};
  std::int64_t times{1};  ///< > 1: as many, each `bytes` further on
  std::string limit;      ///< what the engine claims takes the place of `times`, `bytes`, or moves both offsets
  bool over{false};       ///< one more than that; for alignment: half of it
};

struct RuleStep {
  std::string action, as;
  std::string side{"initiator"};
  std::string region, peer{"peer"}, request{"request"}, op{"write"}, blob{"whole"}, state, memory{"host"}, kind{"memory"},
      access{"all"}, notification;
  std::int64_t at{0}, bytes{1 << 20}, address{-1}, amount{0}, within_ms{1000};
  std::vector<std::string> regions{"remote"};
  std::vector<RuleCopy> copies{RuleCopy{}};
};

struct RuleEntry {
  std::string id, title, known_as, explain, advice;
  std::string prelude{"pair"};
  json options = json::object(), environment = json::object();  ///< in front of those of the engine's entry; null removes
  std::vector<RuleStep> steps;
  std::map<std::string, std::vector<std::string>> expect;  ///< engine -> what is seen; several: each is right (racy)
  bool once{false};            ///< waits for the engines' own limits: played once where others are played often
  std::string timed, promise;  ///< the step whose time counts; where it is written how long it may take
  std::map<std::string, std::int64_t> promised_ms;  ///< engine -> how long that step may take
  std::string notes, file;
  std::string claim;  ///< of a claim: which; "always": the header demands it of every engine
  std::map<std::string, std::vector<std::string>> holds;  ///< the claim's value -> what may be seen
  std::string beyond;                                     ///< what of the claim no test on this machine could refute
  std::map<std::string, std::string> when;                ///< only asked where these claims have these values
};

const Table<RuleStep>& rule_step_table();
const Table<RuleEntry>& rule_table();
const Table<RuleEntry>& claim_table();

}  // namespace kvcts::catalogue
