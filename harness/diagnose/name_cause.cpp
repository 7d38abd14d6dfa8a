#include "diagnose/name_cause.hpp"

#include <fmt/format.h>

#include "case/text.hpp"
#include "diagnose/claims.hpp"
#include "diagnose/lowering.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

namespace {

Diagnosis searched(const CaseBytes& bytes, const RegionExtents& extents, std::string* trace) {
  const Crop crop = extents.crop();
  if (2 * extents.unexplained() > bytes.wrong_bytes) return {};
  constexpr std::int64_t most =
      4 << 20;  // of which each byte costs an attribution: what a reader's output was gathered from
  if (crop.whole && oracle::content_bytes(bytes.truth).least > most) return {};
  const scenario::Scenario reported = lower(bytes.truth, crop);
  const scenario::AddressSpace space(reported);
  scenario::ReportedRun arrived = extents.reported(space, crop);
  arrived.real = bytes.pass == 0 && bytes.truth.content.kind == "tags";
  const std::uint64_t seed = arrived.real ? scenario::seed_before(bytes.truth.seed) : bytes.truth.seed;
  scenario::Explanation why = scenario::explain(reported, space, arrived, seed, claims_of(bytes.truth));
  if (trace) *trace = std::move(why.trace);
  why.doubts.cut = why.doubts.cut || !crop.whole;
  if (!why.exact) return {};
  const std::int64_t left = extents.unexplained(), wrong = bytes.wrong_bytes + bytes.source_wrong;
  if (left > 0)
    why.doubts.unexplained_part = fmt::format("what {} bytes are that lie beside content", text::thousands(left));
  if (crop.whole) return scenario::as_diagnosis(why, wrong - left);
  why.words += ": explains every wrong byte of the layers and blocks that were looked at";
  return scenario::as_diagnosis(why, 0);
}

}  // namespace

Diagnosis name_the_end(const CaseBytes& bytes) {
  if (Diagnosis d = from_events(bytes); !d.text.empty()) return d;
  return from_gathering(bytes);
}

Diagnosis name_the_cause(const CaseBytes& bytes, const RegionExtents* extents, bool search, std::string* trace) {
  Diagnosis d = at_sight(bytes);
  if (!d.text.empty() || !search || bytes.wrong_bytes + bytes.source_wrong == 0) return d;
  try {
    if (extents) d = searched(bytes, *extents, trace);
  } catch (const std::exception&) {
    // No steps tell this case.
  }
  if (d.text.empty()) d.text = not_identified;
  return d;
}

}  // namespace kvcts::diagnose
