#include "cli/availability.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <set>

#include "catalogue/nearest.hpp"
#include "cli/exit.hpp"
#include "cli/doctor/doctor.hpp"
#include "transport/packages.hpp"
#include "transport/session.hpp"

namespace kvcts::cli {
namespace {

/// NVIDIA GPUs that answer, asked once.
std::ptrdiff_t gpus_found() {
  static const std::ptrdiff_t count = [] {
    const auto gpus = doctor::gpus();
    return std::count_if(gpus.findings.begin(), gpus.findings.end(), [](const auto& f) { return f.state == doctor::State::good; });
  }();
  return count;
}

/// What an entry of cases/engines may name under `needs`, and how it is looked for. Returns "" when it is there. Any other need is an engine
/// package (harness/engines/packages).
const std::map<std::string, std::function<std::string()>>& probes() {
  static const std::map<std::string, std::function<std::string()>> table{
      {"ucx", [] { return std::string(); }},  // the plug-in links it: it is there when the plug-in loads
      {"gpu", [] { return gpus_found() > 0 ? std::string() : "no NVIDIA GPU that CUDA can use"; }},
      {"gpus", [] { return gpus_found() > 1 ? std::string() : "fewer than two NVIDIA GPUs that CUDA can use"; }},
  };
  return table;
}

}  // namespace

std::int64_t Availability::memory() {
  if (memory_) return *memory_;
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  std::int64_t kib = 0;
  memory_ = std::numeric_limits<std::int64_t>::max();  // nobody says: no limit
  while (in >> key >> kib && std::getline(in, unit)) {
    if (key == "MemAvailable:") memory_ = kib * 1024 / 5 * 4;
  }
  return *memory_;
}

std::optional<Availability::Lack> Availability::find(const std::string& engine) const {
  const auto* entry = catalogue_.engines().find(engine);
  if (!entry) return std::nullopt;
  for (const auto& need : entry->needs) {
    const auto probe = probes().find(need);
    const auto missing_package = [&] { return transport::package_folder(need).empty() ? transport::package_missing(need) : std::string(); };
    if (std::string reason = probe != probes().end() ? probe->second() : missing_package(); !reason.empty()) return Lack{need, fmt::format("engine {} needs {}: {}", engine, need, reason)};
  }
  if (entry->plugin.empty()) return std::nullopt;  // the connector program moves the bytes: it is asked for itself
  if (const auto answer = doctor::load_plugin(entry->plugin, entry->environment); !answer.empty()) {
    return Lack{engine, fmt::format("engine {}: {}", engine, answer)};
  }
  return std::nullopt;
}

const std::optional<Availability::Lack>& Availability::lack(const std::string& engine) {
  const auto known = known_.find(engine);
  return known != known_.end() ? known->second : known_.emplace(engine, find(engine)).first->second;
}

void Availability::check_names(const std::vector<std::string>& required) const {
  std::vector<std::string> names = catalogue_.engines().ids();
  for (const auto& [need, probe] : probes()) names.push_back(need);
  for (const auto& [id, engine] : catalogue_.engines()) names.insert(names.end(), engine.needs.begin(), engine.needs.end());
  for (const auto& name : required) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw UsageError(fmt::format("--require expects engines or what they need, found '{}'{}", name, catalogue::suggestion(name, names)));
    }
  }
}

bool Availability::required(const std::vector<std::string>& required, const std::string& engine, const Lack& lack) {
  return std::any_of(required.begin(), required.end(), [&](const std::string& name) { return name == engine || name == lack.name; });
}

}  // namespace kvcts::cli
