#include "cli/provenance.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "cli/commit.hpp"
#include "process/procfs.hpp"
#include "process/sandbox/sandbox.hpp"

namespace kvcts::cli {

namespace fs = std::filesystem;

namespace {
std::string digits_of(const XXH128_hash_t& hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }
}  // namespace

std::string digest_of_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink, error), end;
       !error && at != end; at.increment(error)) {
    const std::string kind = at->path().extension();
    if ((kind == ".yaml" || kind == ".json") && at->is_regular_file(error)) files.push_back(at->path());
  }
  if (error || files.empty()) return "";
  std::sort(files.begin(), files.end());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto add = [&](const std::string& text) {
    const std::uint64_t size = text.size();
    XXH3_128bits_update(state.get(), &size, sizeof size);
    XXH3_128bits_update(state.get(), text.data(), text.size());
  };
  for (const fs::path& file : files) {
    std::ostringstream content;
    content << std::ifstream(file, std::ios::binary).rdbuf();
    add(file.lexically_relative(folder).string());
    add(content.str());
  }
  return digits_of(XXH3_128bits_digest(state.get()));
}

nlohmann::json ci_job(const Environment& environment) {
  const auto get = [&](const char* name) { return environment(name).value_or(""); };
  nlohmann::json job;
  const auto take = [&](const char* system, const std::string& name, const std::string& url, const std::string& commit) {
    job = {{"system", system}};
    for (const auto& [key, value] : {std::pair{"job", &name}, {"url", &url}, {"commit", &commit}})
      if (!value->empty()) job[key] = *value;
  };
  if (get("GITHUB_ACTIONS") == "true") {
    const std::string run = get("GITHUB_RUN_ID");
    take("GitHub Actions", get("GITHUB_WORKFLOW") + "/" + get("GITHUB_JOB"),
         run.empty() ? "" : get("GITHUB_SERVER_URL") + "/" + get("GITHUB_REPOSITORY") + "/actions/runs/" + run,
         get("GITHUB_SHA"));
  } else if (get("GITLAB_CI") == "true") {
    take("GitLab CI", get("CI_JOB_NAME"), get("CI_JOB_URL"), get("CI_COMMIT_SHA"));
  } else if (environment("JENKINS_URL")) {
    take("Jenkins", get("JOB_NAME"), get("BUILD_URL"), get("GIT_COMMIT"));
  } else if (get("BUILDKITE") == "true") {
    take("Buildkite", get("BUILDKITE_PIPELINE_SLUG"), get("BUILDKITE_BUILD_URL"), get("BUILDKITE_COMMIT"));
  } else if (environment("TF_BUILD")) {
    const std::string id = get("BUILD_BUILDID");
    take("Azure Pipelines", get("BUILD_DEFINITIONNAME"),
         id.empty()
             ? ""
             : get("SYSTEM_TEAMFOUNDATIONCOLLECTIONURI") + get("SYSTEM_TEAMPROJECT") + "/_build/results?buildId=" + id,
         get("BUILD_SOURCEVERSION"));
  } else if (get("CI") == "true" || get("CI") == "1") {
    take("unknown", "", "", "");
  }
  return job;
}

nlohmann::json provenance(const fs::path& cases, const fs::path& golden) {
  std::ostringstream manifest;
  manifest << std::ifstream(golden / "MANIFEST.json", std::ios::binary).rdbuf();
  const std::string listed = manifest.str();
  nlohmann::json out{{"commit", built_from()},
                     {"cases", digest_of_folder(cases)},
                     {"golden", listed.empty() ? "" : digits_of(XXH3_128bits(listed.data(), listed.size()))},
                     {"host", process::host_name()},
                     {"isolation", process::isolation_text()}};
  const nlohmann::json ci = ci_job([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  if (!ci.is_null()) out["ci"] = ci;
  return out;
}

}  // namespace kvcts::cli
