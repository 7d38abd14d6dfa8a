// Blind negatives: cases in which a fault injector (cases/saboteurs, kinds connector and planner) hands the product a wrong
// list. To the engine it is a list like any other; an engine that moves it, and a harness that checks, end as FAIL with the
// fault injector's class. The challenge determines which ones.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "case/result.hpp"
#include "cli/certify/challenge.hpp"
#include "cli/certify/subject.hpp"
#include "cli/run/plan.hpp"
#include "tools/sabotage/fault_injectors.hpp"

namespace kvcts::cli {

struct Negative {
  std::string id;           ///< "planner/x @ kv/producer=..."
  std::size_t selected{0};  ///< of the subject's selection
  sabotage::FaultInjector injector;
  CaseResult rehearsal;  ///< the same with the suite's own engine memcpy: FAIL, with the class
};

/// This machine cannot run the suite's own engine.
struct CannotRehearse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// As many as the challenge asks for, the same wherever they are drawn: each is rehearsed, and one that this suite would not
/// name is drawn anew. Starts processes. Throws UsageError where the profile has no place for so many, and CannotRehearse.
std::vector<Negative> draw_negatives(const Subject& subject, const Challenge& challenge, int jobs);
/// Puts them among the cases of a run, at places that follow from the challenge: neither time nor process tells an engine
/// what it is given.
void hide_negatives(Plan& plan, const std::vector<Negative>& negatives, const Challenge& challenge);
/// What workers learn of a case in a run for a certificate: its copies, computed here, and nothing from which another list
/// could follow. So nothing in their memory tells a negative from a case.
nlohmann::json blind_view(const ResolvedCase& resolved);
/// Why this is not what a negative has to come to; "": it is.
std::string why_not_caught(const CaseResult& result, FaultClass fault_class);

}  // namespace kvcts::cli
