// The Python environment of the golden generator, and the golden files.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/child.hpp"
#include "cli/doctor/doctor.hpp"
#include "cli/paths.hpp"

namespace kvcts::cli::doctor {
namespace fs = std::filesystem;

Section python() {
  Section s{"Python", {}};
  const std::string interpreter = find_python();
  const ProgramAnswer version = ask_program({interpreter, "--version"}, std::chrono::seconds(10));
  if (version.status != 0) {
    s.findings.push_back({"interpreter", State::missing, "no " + interpreter,
                          "golden files cannot be regenerated for comparison; run ./run_suite.sh install, or set KVCTS_PYTHON", nullptr});
    return s;
  }
  s.findings.push_back({"interpreter", State::good, fmt::format("{} ({})", version.output.substr(0, version.output.find('\n')), interpreter), "",
                        interpreter});
  const std::string script =
      "from importlib.metadata import version as v, PackageNotFoundError\n"
      "for p in ('numpy', 'ml_dtypes', 'h5py', 'PyYAML'):\n"
      "    try: print(p, v(p))\n"
      "    except PackageNotFoundError: print(p, '-')\n";
  std::istringstream lines(ask_program({interpreter, "-c", script}, std::chrono::seconds(20)).output);
  for (std::string package, found; lines >> package >> found;) {
    const bool have = found != "-";
    s.findings.push_back({package, have ? State::good : State::missing, have ? found : "not installed",
                          have ? "" : "golden files cannot be regenerated for comparison; run ./run_suite.sh install",
                          have ? nlohmann::json(found) : nlohmann::json()});
  }
  return s;
}

Section golden() {
  Section s{"golden tensors", {}};
  std::error_code error;
  std::size_t files = 0;
  std::uintmax_t bytes = 0;
  bool manifest = false;
  for (const auto& entry : fs::recursive_directory_iterator(golden_folder(), fs::directory_options::follow_directory_symlink, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("manifest", 0) == 0) manifest = true;
    if (entry.path().extension() != ".h5" && entry.path().extension() != ".hdf5") continue;
    ++files;
    bytes += entry.file_size(error);
  }
  if (files == 0) {
    s.findings.push_back({"files", State::missing, "none in " + golden_folder().string(), "suite golden has nothing to run", nullptr});
  } else {
    s.findings.push_back({"files", State::good, fmt::format("{} files, {:.1f} MiB; `kvcts golden verify` checks them", files,
                                                            static_cast<double>(bytes) / (1u << 20)),
                          "", files});
  }
  if (!manifest) s.findings.push_back({"manifest", State::missing, "no manifest", "golden files cannot be trusted", nullptr});
  return s;
}

}  // namespace kvcts::cli::doctor
