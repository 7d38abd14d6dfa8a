#include "matrix/waivers.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "matrix/ids.hpp"
#include "matrix/select.hpp"

namespace kvcts::matrix {

namespace {

// "FAIL axis-permuted in register", for sentences.
std::string to_string(const Expected& expected) {
  std::string out(name(expected.outcome));
  if (expected.fault_class != FaultClass::none) out += " " + std::string(name(expected.fault_class));
  if (expected.phase) out += " in " + std::string(name(*expected.phase));
  if (!expected.contains.empty()) out += " saying '" + expected.contains + "'";
  return out;
}

std::string to_string(const CaseResult& result) {
  Expected got;
  got.outcome = result.outcome, got.fault_class = result.diagnosis.fault_class;
  if (result.outcome != Outcome::pass) got.phase = result.phase;
  return to_string(got);
}

/// Did a flaky case fail only as the waiver says?
bool failed_so(const CaseResult& result, std::string_view outcome) {
  const auto& failures = result.tries.failures;
  return result.outcome == Outcome::flaky &&
         std::all_of(failures.begin(), failures.end(), [&](const Try& one) { return name(one.outcome) == outcome; });
}

}  // namespace

bool meets(const CaseResult& result, const Expected& expected) {
  return result.outcome == expected.outcome &&
         (expected.fault_class == FaultClass::none || expected.fault_class == result.diagnosis.fault_class) &&
         (!expected.phase || expected.phase == result.phase) &&
         (expected.contains.empty() || result.message.find(expected.contains) != std::string::npos);
}

bool meets(const CaseResult& result, const std::vector<Expected>& expected) {
  if (expected.empty()) return meets(result, Expected{});
  return std::any_of(expected.begin(), expected.end(), [&](const Expected& one) { return meets(result, one); });
}

Waivers::Waivers(Space& space) : space_(space) {
  for (const auto& [id, entry] : space.catalogue().waivers()) {
    Compiled compiled{&entry, nullptr};
    if (!entry.match.where.empty()) {
      try {
        compiled.where = std::make_unique<Expression>(entry.match.where, space);
      } catch (const Error& error) {
        throw Error(entry.file + ":1: waiver '" + id + "': key 'where': " + error.what());
      }
    }
    compiled_.push_back(std::move(compiled));
  }
}

bool Waivers::covers(const Compiled& waiver, const CaseResult& result) {
  if (!waiver.entry->match.id.empty() && !catalogue::matches_glob(waiver.entry->match.id, result.id)) return false;
  if (!waiver.where) return true;
  const auto axes_at = result.facts.find("axes");
  if (axes_at != result.facts.end()) return waiver.where->evaluate(lookup_of(space_, *axes_at), result.id);
  return is_matrix_id(result.id) && (*waiver.where)(point_from_id(space_, result.id), result.id);
}

Ruling Waivers::judge(const CaseResult& result, const std::vector<Expected>& expected, std::string_view day) {
  switch (result.outcome) {
    case Outcome::skipped:
      return {Verdict::skipped, "", ""};
    case Outcome::not_run:
      return {Verdict::not_run, "", ""};
    case Outcome::error:
      return {Verdict::error, "", ""};
    default:
      break;
  }
  const bool good = meets(result, expected) || (result.outcome == Outcome::unsupported);
  Ruling expired;
  for (const auto& waiver : compiled_) {
    const auto& match = waiver.entry->match;
    if (result.outcome == Outcome::unsupported || !covers(waiver, result)) continue;
    const std::string who = waiver.entry->reason + " (" + waiver.entry->owner + ", " + waiver.entry->link + ", until " +
                            waiver.entry->expires + ")";
    const bool holds_still = std::string_view(waiver.entry->expires) >= day;
    if (good) {
      // Only a waiver that names cases can be out of date; one by class alone does not refer to this case.
      const bool names_cases = !match.id.empty() || waiver.where;
      if (names_cases && holds_still) return {Verdict::xpass, waiver.entry->id, "ended as expected under a waiver: " + who};
      continue;
    }
    if (match.fault_class != FaultClass::none && match.fault_class != result.diagnosis.fault_class) continue;
    if (!match.outcome.empty() && match.outcome != name(result.outcome) && !failed_so(result, match.outcome)) continue;
    if (holds_still) return {Verdict::xfail, waiver.entry->id, who};
    if (expired.waiver.empty()) expired = {Verdict::expired_waiver, waiver.entry->id, "the waiver has expired: " + who};
  }
  if (!good && !expired.waiver.empty()) return expired;
  if (good) return {Verdict::as_expected, "", ""};
  std::string wanted = expected.empty() ? "PASS" : "";
  for (const auto& one : expected) wanted += (wanted.empty() ? "" : " or ") + to_string(one);
  return {Verdict::unexpected, "", "expected " + wanted + ", got " + to_string(result)};
}

std::string today() {
  const auto now = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const std::chrono::year_month_day ymd{now};
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(ymd.year()), static_cast<unsigned>(ymd.month()),
                static_cast<unsigned>(ymd.day()));
  return text;
}

}  // namespace kvcts::matrix
