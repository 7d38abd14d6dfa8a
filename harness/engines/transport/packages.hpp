// Where packages of transfer engines lie: ./run_suite.sh puts each into a folder of its own
// (harness/engines/packages/README.md). Programs ask whether one is there, plug-ins open its libraries.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace kvcts::transport {

/// Variable that names another folder of packages.
inline constexpr const char* packages_variable = "KVCTS_ENGINE_PACKAGES";
/// Variable by which an entry of cases/engines chooses the package that its plug-in opens, e.g. "nixl-1.5.1".
inline constexpr const char* package_variable = "KVCTS_ENGINE_PACKAGE";

/// The folder of all packages: $KVCTS_ENGINE_PACKAGES, else .venv/engines in the checkout that the running program was built
/// in. "" for an installation elsewhere.
inline std::filesystem::path packages_folder() {
  if (const char* named = std::getenv(packages_variable); named != nullptr && *named != '\0') return named;
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  // <checkout>/build/share/kvcts/golden is a link to <checkout>/golden
  const auto golden = std::filesystem::canonical(program.parent_path().parent_path() / "share/kvcts/golden", error);
  return error ? std::filesystem::path() : golden.parent_path() / ".venv/engines";
}

/// A package's folder, "" when it is not installed (whole).
inline std::filesystem::path package_folder(const std::string& name) {
  const auto folder = packages_folder() / name;
  std::error_code error;
  return !name.empty() && std::filesystem::is_regular_file(folder / "kvcts-pins", error) ? folder : std::filesystem::path();
}

/// What to say when it is not there.
inline std::string package_missing(const std::string& name) {
  return "engine package " + name + " is not installed in " + packages_folder().string() +
         ": ./run_suite.sh install puts it there, or " + packages_variable + " names another folder";
}

}  // namespace kvcts::transport
