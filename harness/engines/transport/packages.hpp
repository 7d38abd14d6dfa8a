// Where packages of transfer engines lie: ./run_suite.sh puts each into its own folder
// (harness/engines/packages/README.md). Programs check whether one is installed; plug-ins open its libraries.
#pragma once

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "process/installation.hpp"

namespace kvcts::transport {

/// Variable that names another folder of packages.
inline constexpr const char* packages_variable = "KVCTS_ENGINE_PACKAGES";
/// Variable that an entry of cases/engines sets to choose the package that its plug-in opens, e.g. "nixl-1.5.1".
inline constexpr const char* package_variable = "KVCTS_ENGINE_PACKAGE";

/// The folder of all packages: $KVCTS_ENGINE_PACKAGES, else .venv/engines in the checkout that built the running
/// program. "" for an installation elsewhere.
inline std::filesystem::path packages_folder() {
  if (const char* named = std::getenv(packages_variable); named != nullptr && *named != '\0') return named;
  const auto checkout = process::checkout();
  return checkout.empty() ? checkout : checkout / ".venv/engines";
}

/// The package's distribution, as pip writes it beside what it installs: "nixl-1.5.1" -> "nixl_cu12-1.5.1.dist-info". "" for
/// a name that is no engine's.
inline std::string distribution(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> table{
      {{"nixl-cu13-", "nixl_cu13-"},
       {"nixl-", "nixl_cu12-"},
       {"ucx-", "libucx_cu12-"},
       {"mooncake-", "mooncake_transfer_engine_non_cuda-"}}};
  for (const auto& [ours, theirs] : table)
    if (name.starts_with(ours)) return std::string(theirs) + name.substr(ours.size()) + ".dist-info";
  return "";
}

/// A package's folder, "" if it is not completely installed: one of its own, or the Python environment that the suite was
/// installed into.
inline std::filesystem::path package_folder(const std::string& name) {
  const auto all = packages_folder();
  std::error_code error;
  if (!all.empty() && !name.empty() && std::filesystem::is_regular_file(all / name / "kvcts-pins", error)) return all / name;
  const auto site = process::site_packages();
  const std::string installed = distribution(name);
  return !site.empty() && !installed.empty() && std::filesystem::is_directory(site / installed, error)
             ? site
             : std::filesystem::path();
}

/// The version that pip recorded in a package's folder: a build of the user's may lie in one that is named after another
/// version. The name's own where there is no record; "none chosen" for a name that is no engine's.
inline std::string package_version(const std::string& name) {
  constexpr std::string_view ending = ".dist-info";
  const std::string usual = distribution(name);
  if (usual.empty()) return "none chosen";
  const std::string stem = usual.substr(0, usual.rfind('-', usual.size() - ending.size() - 1) + 1);
  const auto version = [&](const std::string& record) {
    return record.substr(stem.size(), record.size() - stem.size() - ending.size());
  };
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(package_folder(name), error)) {
    const std::string record = entry.path().filename().string();
    if (record.starts_with(stem) && record.ends_with(ending)) return version(record);
  }
  return version(usual);
}

/// Error message for a missing package.
inline std::string package_missing(const std::string& name) {
  const auto folder = packages_folder(), site = process::site_packages();
  std::string wanted = distribution(name);
  if (folder.empty() && !site.empty() && !wanted.empty()) {
    wanted = wanted.substr(0, wanted.rfind(".dist-info"));
    wanted.replace(wanted.rfind('-'), 1, "==");
    return "engine package " + name + " is not installed beside kvcts in " + site.string() + ": pip install " + wanted +
           ", or set " + packages_variable + " to a folder of engine packages";
  }
  return "engine package " + name +
         (folder.empty() ? " is not here, and this installation has no folder of engine packages"
                         : " is not installed in " + folder.string()) +
         ": install it with ./run_suite.sh install, or set " + packages_variable + " to another folder";
}

}  // namespace kvcts::transport
