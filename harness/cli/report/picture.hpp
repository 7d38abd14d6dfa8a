// The data of a drawing of a failure: how both sides are laid out, which blocks belong where, and, if the plan shows it,
// which bytes each range of the destination was copied from. The page draws it; the format is `$defs/picture` of
// reports/schema/results.schema.json.
#pragma once

#include <nlohmann/json.hpp>

#include "case/case.hpp"
#include "case/result.hpp"

namespace kvcts::report {

/// The picture of a case. `plan` is the workers' reply to "plan" (null: not known): its sample of copies gives `moves`,
/// unless the engine re-laid the bytes on the way. Lists are cut to what can be seen (limits in picture.cpp); what is cut is
/// counted.
nlohmann::json picture(const ResolvedCase& resolved, const nlohmann::json& plan);

/// FAIL, REFUSED, HANG and CRASH have one.
bool has_picture(Outcome outcome);

/// Takes the evidence of kind "plan" out of a result: what of it people look at is in the picture. Null when there is none.
nlohmann::json take_plan(CaseResult& result);

/// Puts the picture into a result that has one. A picture that is there stays (a diagnosis knows more than a plan); what it
/// lacks is added.
void add_picture(const ResolvedCase& resolved, const nlohmann::json& plan, CaseResult& result);

}  // namespace kvcts::report
