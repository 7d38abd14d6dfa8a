#include "cli/availability.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "cli/child.hpp"
#include "cli/doctor/doctor.hpp"
#include "cli/names.hpp"
#include "connector/program/command.hpp"
#include "engines/transport/packages.hpp"
#include "engines/transport/session.hpp"

namespace kvcts::cli {
namespace {

/// NVIDIA GPUs that answer, asked once.
std::ptrdiff_t gpus_found() {
  static const std::ptrdiff_t count = [] {
    const auto gpus = doctor::gpus();
    return std::count_if(gpus.findings.begin(), gpus.findings.end(),
                         [](const auto& f) { return f.state == doctor::FindingState::good; });
  }();
  return count;
}

/// The library that a plug-in links and this machine lacks, as the loader says it; "" when there is none, or when loading it
/// fails in any other way, which who loads it will say.
std::string library_lacking(const std::filesystem::path& plugin) {
  const ChildAnswer answer = ask_child(
      [&] {
        if (dlopen(plugin.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr) return nlohmann::json("");
        const std::string why = dlerror();
        return nlohmann::json(why.starts_with(plugin.string()) || why.find("cannot open") == std::string::npos ? "" : why);
      },
      std::chrono::seconds(10));
  return answer.ok ? answer.value.get<std::string>() : "";
}

/// What an entry of cases/engines may name under `needs` that is no engine package (harness/engines/packages), and how it is
/// looked for. Returns "" when it is there. A library is linked by the plug-in, which finds it or not.
const std::map<std::string, std::function<std::string()>>& probes() {
  static const std::map<std::string, std::function<std::string()>> table{
      {"ucx", [] { return std::string(); }},
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
  memory_ = std::numeric_limits<std::int64_t>::max();  // unknown: no limit
  while (in >> key >> kib && std::getline(in, unit)) {
    if (key == "MemAvailable:") memory_ = kib * 1024 / 5 * 4;
  }
  return *memory_;
}

Availability::Standing Availability::examine(const std::string& engine) const {
  const auto* entry = catalogue_.engines().find(engine);
  if (!entry) return {};
  for (const auto& need : entry->needs) {
    const auto probe = probes().find(need);
    const auto missing_package = [&] {
      return transport::package_folder(need).empty() ? transport::package_missing(need) : std::string();
    };
    if (std::string reason = probe != probes().end() ? probe->second() : missing_package(); !reason.empty())
      return {Lack{{need, engine}, fmt::format("engine {} needs {}: {}", engine, need, reason)}, {}};
  }
  if (entry->plugin.empty()) return {};  // the connector program moves the bytes: it is asked for itself
  std::filesystem::path file;
  try {
    file = transport::find_plugin(entry->plugin);
  } catch (const transport::TransportError& error) {
    // A plug-in is not built where what it links is not there.
    Lack lack{{engine}, fmt::format("engine {}: {}", engine, error.what())};
    lack.names.insert(lack.names.end(), entry->needs.begin(), entry->needs.end());
    return {std::move(lack), {}};
  }
  const bool links =
      !entry->needs.empty() && transport::is_own_plugin(entry->plugin);  // a vendor's is loaded in a sandbox only
  if (const std::string reason = links ? library_lacking(file) : ""; !reason.empty()) {
    Lack lack{entry->needs, fmt::format("engine {}: {}", engine, reason)};
    lack.names.push_back(engine);
    return {std::move(lack), {}};
  }
  return {std::nullopt, doctor::load_plugin(file, entry->environment, entry->grants)};
}

const Availability::Standing& Availability::standing(const std::string& engine) {
  const auto known = engines_.find(engine);
  return known != engines_.end() ? known->second : engines_.emplace(engine, examine(engine)).first->second;
}

const std::optional<Availability::Lack>& Availability::connector_lack(const std::string& connector) {
  const auto known = connectors_.find(connector);
  if (known != connectors_.end()) return known->second;
  std::optional<Lack> lack;
  if (const auto* entry = catalogue_.connectors().find(connector); entry && entry->kind == "program") {
    try {
      for (const Side side : {Side::producer, Side::consumer})
        connector::program::command_of(connector, connector::program::options_of_side(entry->options, side));
    } catch (const connector::program::NotHere& missing) {
      const bool no_file = dynamic_cast<const connector::program::NoFile*>(&missing) != nullptr;
      lack = Lack{{missing.name, connector}, missing.what(), no_file};
    } catch (const std::exception&) {
      // The worker that starts it reports a bad entry.
    }
  }
  return connectors_.emplace(connector, std::move(lack)).first->second;
}

Availability::Needs Availability::needs(const std::string& engine, const std::string& connector) const {
  Needs out;
  if (const auto* entry = catalogue_.connectors().find(connector); entry && entry->kind == "program") {
    out.started = entry->environments();
    out.started.push_back(connector);
  }
  out.all = out.started;
  if (const auto* entry = catalogue_.engines().find(engine)) {
    if (out.started.empty()) out.started = {engine};
    out.all.push_back(engine);
    out.all.insert(out.all.end(), entry->needs.begin(), entry->needs.end());
  }
  out.all.emplace_back(memory_lack);
  return out;
}

void Availability::check_names(const std::vector<std::string>& required) const {
  std::vector<std::string> names = catalogue_.lackable_names();
  names.emplace_back(memory_lack);
  for (const auto& [need, probe] : probes()) names.push_back(need);
  expect_known("--require expects engines, what they need, connectors or environments", required, names);
}

}  // namespace kvcts::cli
