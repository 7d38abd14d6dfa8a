// Where a run comes from: commit, data, host and CI job.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace kvcts::cli {

/// Value of an environment variable; nullopt where there is none.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// XXH3-128 over names and contents of the data (*.yaml, *.json) below a folder, in the order of their names, the same in a
/// checkout and in an installation; "" where there is none.
std::string digest_of_folder(const std::filesystem::path& folder);

/// The CI job by its own variables: {system, job, url, commit}, as far as it says; null outside of CI. GitHub Actions,
/// GitLab CI, Jenkins, Buildkite and Azure Pipelines are known; any other with CI=true is "unknown".
nlohmann::json ci_job(const Environment& environment);

/// {commit, cases, golden, host, ci}: the commit that the program was built of ("ef559fb", with "+" where files had changed,
/// "unknown" without git), digests of the catalogue and of the golden tensors' manifest, the host's name, ci_job().
nlohmann::json provenance(const std::filesystem::path& cases, const std::filesystem::path& golden);

}  // namespace kvcts::cli
