// Facts of the machine that are stored with a run. Nothing that takes time to ask, but the driver where there is one.
#include <cstdlib>
#include <filesystem>

#include "cli/doctor/doctor.hpp"
#include "engines/transport/packages.hpp"
#include "process/installation.hpp"

namespace kvcts::cli::doctor {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Adds what pip installed into a folder, by the names of its records: "numpy-2.2.0.dist-info".
void add_packages(const fs::path& folder, const std::string& prefix, json& packages) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".dist-info")) continue;
    const std::string stem = name.substr(0, name.size() - std::string_view(".dist-info").size());
    if (const auto dash = stem.rfind('-'); dash != std::string::npos)
      packages[prefix + stem.substr(0, dash)] = stem.substr(dash + 1);
  }
}

/// Of the checkout's environment, and of engines that are kept in folders of their own.
json packages() {
  json found = json::object();
  const fs::path root = fs::path(process::find_python()).parent_path().parent_path();
  std::error_code error;
  if (!root.empty())
    for (const auto& entry : fs::directory_iterator(root / "lib", error))
      add_packages(entry.path() / "site-packages", "", found);
  for (const auto& entry : fs::directory_iterator(transport::packages_folder(), error))
    add_packages(entry.path(), "engines/" + entry.path().filename().string() + "/", found);
  return found;
}

}  // namespace

json machine() {
  json facts = json::object();
  for (const auto& section : {processor(), memory()})
    for (const auto& f : section.findings) facts[f.key] = f.value;
  const std::string kernel_driver = first_line("/proc/driver/nvidia/version");
  if (!kernel_driver.empty()) facts["nvidia_kernel_driver"] = kernel_driver;
  if (!kernel_driver.empty() || std::getenv("KVCTS_CUDA_DRIVER") != nullptr)
    for (const auto& f : gpus().findings)
      if (f.state == FindingState::good) facts["gpus"].push_back(f.value);
  if (json found = packages(); !found.empty()) facts["packages"] = std::move(found);
  return facts;
}

}  // namespace kvcts::cli::doctor
