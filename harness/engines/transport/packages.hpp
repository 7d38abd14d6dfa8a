// Where packages of transfer engines lie: ./run_suite.sh puts each into its own folder
// (harness/engines/packages/README.md). Programs check whether one is installed; plug-ins open its libraries.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

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

/// A package's folder, "" if it is not completely installed.
inline std::filesystem::path package_folder(const std::string& name) {
  const auto folder = packages_folder() / name;
  std::error_code error;
  return !name.empty() && std::filesystem::is_regular_file(folder / "kvcts-pins", error) ? folder : std::filesystem::path();
}

/// Error message for a missing package.
inline std::string package_missing(const std::string& name) {
  const auto folder = packages_folder();
  return "engine package " + name +
         (folder.empty() ? " is not here, and this installation has no folder of engine packages"
                         : " is not installed in " + folder.string()) +
         ": install it with ./run_suite.sh install, or set " + packages_variable + " to another folder";
}

}  // namespace kvcts::transport
