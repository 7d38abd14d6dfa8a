// The Python environment of the golden generator, and the golden files.
#include <fmt/format.h>

#include <sstream>

#include "cli/doctor/doctor.hpp"
#include "golden/manifest.hpp"
#include "process/installation.hpp"

namespace kvcts::cli::doctor {

DoctorSection python() {
  DoctorSection s{"Python", {}};
  const std::string interpreter = process::find_python();
  const auto version = output_of({interpreter, "--version"});
  if (!version) {
    s.findings.push_back(
        {"interpreter", FindingState::missing, "no " + interpreter,
         "golden files cannot be regenerated for comparison; run ./run_suite.sh install, or set KVCTS_PYTHON", nullptr});
    return s;
  }
  s.findings.push_back({"interpreter", FindingState::good,
                        fmt::format("{} ({})", version->substr(0, version->find('\n')), interpreter), "", interpreter});
  const std::string script =
      "from importlib.metadata import version as v, PackageNotFoundError\n"
      "for p in ('numpy', 'ml_dtypes', 'h5py', 'PyYAML'):\n"
      "    try: print(p, v(p))\n"
      "    except PackageNotFoundError: print(p, '-')\n";
  std::istringstream lines(output_of({interpreter, "-c", script}).value_or(""));
  for (std::string package, found; lines >> package >> found;) {
    const bool have = found != "-";
    s.findings.push_back({package, have ? FindingState::good : FindingState::missing, have ? found : "not installed",
                          have ? "" : "golden files cannot be regenerated for comparison; run ./run_suite.sh install",
                          have ? nlohmann::json(found) : nlohmann::json()});
  }
  return s;
}

DoctorSection golden_tensors() {
  DoctorSection s{"golden tensors", {}};
  try {
    const golden::Manifest manifest = golden::read_manifest(process::golden_folder());
    std::int64_t bytes = 0;
    std::size_t tensors = 0;
    for (const auto& [name, file] : manifest.files) {
      bytes += file.bytes;
      tensors += file.dtypes.size();
    }
    s.findings.push_back({"files", FindingState::good,
                          fmt::format("{} tensors in {} files, {:.1f} MiB; `kvcts golden verify` checks them", tensors,
                                      manifest.files.size(), static_cast<double>(bytes) / (1u << 20)),
                          "", tensors});
  } catch (const golden::Error& e) {
    s.findings.push_back({"files", FindingState::missing, e.what(), "suite golden has nothing to run", nullptr});
  }
  return s;
}

}  // namespace kvcts::cli::doctor
