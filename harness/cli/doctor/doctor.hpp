// What this machine has. Each probe fills one section; none may crash or hang the doctor (see child.hpp).
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run/supervisor/decide.hpp"

namespace kvcts::cli::doctor {

enum class FindingState { fact, good, missing, broken };
std::string_view name(FindingState state);

struct DoctorFinding {
  std::string key;  ///< stable, for --json: "ptrace"
  FindingState state{FindingState::fact};
  std::string text;         ///< what was found, in words
  std::string consequence;  ///< what is lost without it and what to do; "" when nothing is
  nlohmann::json value;     ///< the same for programs: number, string, list; null = nothing found
};

struct DoctorSection {
  std::string title;  ///< "processor", "GPUs", ...
  std::vector<DoctorFinding> findings;
};

DoctorSection processor();
DoctorSection memory();
DoctorSection watching();  ///< what evidence of hangs needs: ptrace, eu-stack, gdb
DoctorSection gpus();
/// Architectures of the devices that the driver has ("sm_90"), asked in a process of its own. None where the driver is a
/// stand-in.
std::vector<std::string> device_archs();
DoctorSection cuda();  ///< driver, toolkit, cuDNN
DoctorSection rdma();  ///< RDMA devices, GPUDirect RDMA
/// A plug-in of an engine package is tried once a package, as an entry of the catalogue starts it.
struct PackagedEngine {
  std::string plugin, package;
  std::map<std::string, std::string> options, environment;
};
DoctorSection engines(const std::vector<PackagedEngine>& packaged);  ///< plug-ins: found, loaded, self-test
DoctorSection python();
DoctorSection golden_tensors();

/// What a run stores of the machine: processor, memory, GPUs and their driver, Python packages with versions.
nlohmann::json machine();

/// Loads a plug-in in a process of its own, with these variables set. What is wrong with a file that is there is the
/// plug-in's failure, not a lack of the machine: it comes back as a worker that loads it would end. nullopt: it loads.
/// Throws std::system_error when it cannot be asked.
std::optional<supervisor::PhaseResult> load_plugin(const std::filesystem::path& file, const nlohmann::json& environment,
                                                   const std::vector<std::string>& grants);

/// First line of a file without its newline; "" when it cannot be read.
std::string first_line(const std::string& path);
/// Standard output of a program found in PATH, or nullopt when it is not there, fails, or does not end within 20 s.
std::optional<std::string> output_of(const std::vector<std::string>& argv);

}  // namespace kvcts::cli::doctor
