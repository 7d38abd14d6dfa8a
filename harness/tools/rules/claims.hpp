// Tests claims: what a transport reports about itself (kvcts_claims), and what the header demands of every transport.
// Played like rules.
//
//   const std::vector<RuleEntry> tests = read_claims(cases);
//   const ClaimTexts said = claim_texts(session.claims());
//   ClaimSeen seen = judge(tests[0], said, engine);          // in separate processes
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engines/transport/session.hpp"
#include "tools/rules/rules.hpp"

namespace kvcts::rules {

/// Every test of cases/claims, by file and place. Throws catalogue::Error, also for a claim that kvcts_claims does not
/// have.
std::vector<RuleEntry> read_claims(const std::filesystem::path& cases);

/// Claims by name, as texts: "1", "unlimited". Bit masks also per bit: "memories.cuda", "reach.host".
using ClaimTexts = std::map<std::string, std::string>;
ClaimTexts claim_texts(const transport::Claims& claims);
/// Names of the claims themselves, without the bits, in the ABI's order.
std::vector<std::string> claim_names();

struct ClaimSeen {
  enum class Verdict { holds, broken, not_asked };
  Verdict verdict{Verdict::not_asked};
  std::string claimed;  ///< the claim's value; "" for what is always required
  std::string seen;     ///< what was observed
  std::string words;    ///< the engine's last error; or why the test did not run
  std::vector<std::string> allowed;
  double ms{0};
};
std::string_view name(ClaimSeen::Verdict verdict);  ///< "holds", "BROKEN", "not asked"

/// Plays one test with an engine that claims `claims`. `memory` as in run_rule().
ClaimSeen judge(const RuleEntry& test, const ClaimTexts& claims, const EngineEntry& engine, const std::string& memory = "");

}  // namespace kvcts::rules
