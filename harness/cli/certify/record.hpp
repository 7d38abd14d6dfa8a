// What a package records about a case and about the run as a whole; the certifying and the verifying side both build it
// here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "case/result.hpp"
#include "cli/certify/subject.hpp"
#include "run/store/run.hpp"

namespace kvcts::cli {

/// {id, outcome, verdict, evidence, seed, case_digest, execution, digests, bytes, ns, ...}; what is not there is left out.
nlohmann::json record_of(const CaseResult& result);
/// Ties a record that is no plain success to what declares it: {"kind": "constraint" | "waiver", "name": ..., "reason":
/// ...}; null: nothing does.
nlohmann::json claim_of(const CaseResult& result, const Subject& subject, std::size_t selected);
/// claims.json: every claim that a record is tied to, with the number of its cases, waivers with owner, link and last day;
/// in order of kind and name.
nlohmann::json claims_of(const std::vector<nlohmann::json>& records, const Subject& subject);

/// The suite that runs here: {version, commit, cases, golden}: what both sides must have in common.
nlohmann::json suite_here(const std::filesystem::path& cases);
/// {id, version, sha256} of the profile's file.
nlohmann::json profile_here(const std::filesystem::path& cases, const catalogue::ProfileEntry& profile);

}  // namespace kvcts::cli
