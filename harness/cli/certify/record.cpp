#include "cli/certify/record.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "certificate/merkle.hpp"
#include "cli/certify/challenge.hpp"
#include "cli/provenance.hpp"
#include "process/installation.hpp"

namespace kvcts::cli {

using nlohmann::json;

json record_of(const CaseResult& result) {
  const json whole = to_json(result);
  json out{{"id", whole.at("id")},
           {"outcome", whole.at("outcome")},
           {"verdict", whole.at("verdict")},
           {"evidence", whole.at("evidence")},
           {"seed", whole.at("seed")},
           {"case_digest", whole.at("case_digest")},
           {"execution", whole.at("execution")},
           {"bytes",
            {{"checked", result.checked_bytes},
             {"planned", result.planned_bytes},
             {"moved", result.moved_bytes},
             {"expected", result.expected_bytes},
             {"wrong", result.wrong_bytes}}},
           {"copies", result.copies},
           {"wall_ns", result.wall_ns}};
  for (const char* key : {"digests", "phase", "hang", "signal"})
    if (const auto at = whole.find(key); at != whole.end()) out[key] = *at;
  if (!result.message.empty()) out["message"] = whole.at("message");
  if (result.diagnosis.fault_class != FaultClass::none)
    out["class"] = result.diagnosis.fault_class, out["exact"] = result.diagnosis.exact;
  json ns = json::object();
  for (const auto& phase : result.phases) ns[std::string(name(phase.phase))] = phase.ns;
  if (!ns.empty()) out["ns"] = std::move(ns);
  return out;
}

json claim_of(const CaseResult& result, const Subject& subject, std::size_t selected) {
  if (!result.waiver.empty() && result.verdict != Verdict::as_expected) {
    const auto& waiver = subject.catalogue().waivers().at(result.waiver);
    return {{"kind", "waiver"}, {"name", waiver.id}, {"reason", waiver.reason}};
  }
  if (const auto declared = subject.selection().declared(selected); declared && declared->outcome == result.outcome)
    return {{"kind", "constraint"}, {"name", declared->constraint}, {"reason", declared->reason}};
  return nullptr;
}

json claims_of(const std::vector<json>& records, const Subject& subject) {
  std::map<std::pair<std::string, std::string>, json> all;
  for (const json& record : records) {
    const auto claim = record.find("claim");
    if (claim == record.end()) continue;
    const std::string kind = claim->at("kind"), of = claim->at("name");
    auto& entry = all[{kind, of}];
    if (entry.is_null()) {
      entry = {{"kind", kind}, {"name", of}, {"cases", 0}};
      if (kind == "waiver") {
        const auto& waiver = subject.catalogue().waivers().at(of);
        entry.update(
            {{"reason", waiver.reason}, {"owner", waiver.owner}, {"link", waiver.link}, {"expires", waiver.expires}});
      }
    }
    entry["cases"] = entry["cases"].get<std::int64_t>() + 1;
  }
  json out = json::array();
  for (auto& [key, entry] : all) out.push_back(std::move(entry));
  return out;
}

json suite_here(const std::filesystem::path& cases) {
  const json from = provenance(cases, process::golden_folder());
  return {
      {"version", KVCTS_VERSION}, {"commit", from.at("commit")}, {"cases", from.at("cases")}, {"golden", from.at("golden")}};
}

json profile_here(const std::filesystem::path& cases, const catalogue::ProfileEntry& profile) {
  const std::string text = bytes_of_file(cases / "profiles" / (profile.id + ".yaml"));
  return {{"id", profile.id}, {"version", profile.version}, {"sha256", certificate::hex(certificate::sha256(text))}};
}

}  // namespace kvcts::cli
