#include "run/store/run.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <ctime>
#include <map>
#include <set>

#include "run/store/error.hpp"

namespace kvcts::store {
namespace {

/// Names of packages without their folders' versions: engines/nixl-1.5.1/nixl_cu12 is nixl_cu12.
std::map<std::string, std::set<std::string>> packages_of(const RunInfo& info) {
  std::map<std::string, std::set<std::string>> out;
  const nlohmann::json packages = info.machine.value("packages", nlohmann::json::object());
  for (const auto& [path, version] : packages.items())
    if (version.is_string()) out[path.substr(path.rfind('/') + 1)].insert(version.get<std::string>());
  return out;
}

}  // namespace

std::vector<Difference> differences(const RunInfo& before, const RunInfo& after) {
  std::vector<Difference> out;
  const auto differ = [&](const std::string& what, const std::string& x, const std::string& y) {
    if (x != y) out.push_back({what, x, y});
  };
  differ("suite", before.suite, after.suite);
  differ("kvcts", before.version, after.version);
  for (const char* what : {"host", "commit", "cases", "golden"}) {
    const std::string x = before.provenance.value(what, ""), y = after.provenance.value(what, "");
    differ(what, x.substr(0, 12), y.substr(0, 12));
  }
  for (const char* what : {"model", "kernel"}) differ(what, before.machine.value(what, ""), after.machine.value(what, ""));
  auto old = packages_of(before), now = packages_of(after);
  for (const auto& [package, versions] : now) old.try_emplace(package);
  for (const auto& [package, versions] : old)
    differ(package, fmt::format("{}", fmt::join(versions, ", ")), fmt::format("{}", fmt::join(now[package], ", ")));
  return out;
}

std::string why_not_isolated(const RunInfo& info) {
  constexpr std::string_view none = "none: ";
  const std::string isolation = info.provenance.value("isolation", "");
  return isolation.starts_with(none) ? isolation.substr(none.size()) : "";
}

std::string_view name(Ending ending) {
  switch (ending) {
    case Ending::complete:
      return "complete";
    case Ending::interrupted:
      return "interrupted";
    case Ending::budget:
      return "budget";
  }
  return "?";
}

std::string Drift::text() const {
  if (!*this) return "the plan is the one in the store";
  std::string out = fmt::format("the plan differs from the one in the store: {} cases added, {} removed, {} with other data",
                                added, removed, changed);
  for (const auto& line : first) out += "; " + line;
  if (added + removed + changed > static_cast<std::int64_t>(first.size())) out += "; ...";
  return out;
}

nlohmann::json to_json(const Expected& expected) {
  nlohmann::json out{{"outcome", name(expected.outcome)}};
  if (expected.fault_class != FaultClass::none) out["class"] = expected.fault_class;
  if (expected.phase) out["phase"] = name(*expected.phase);
  if (!expected.contains.empty()) out["contains"] = expected.contains;
  return out;
}

Expected expected_from_json(const nlohmann::json& json) {
  Expected out;
  const auto outcome = outcome_from_name(json.at("outcome").get_ref<const std::string&>());
  if (!outcome) throw std::runtime_error("expected outcome: unknown word " + json.at("outcome").dump());
  out.outcome = *outcome;
  out.fault_class = json.value("class", FaultClass::none);
  if (const auto phase = json.find("phase"); phase != json.end()) {
    out.phase = phase_from_name(phase->get_ref<const std::string&>());
    if (!out.phase) throw std::runtime_error("expected outcome: unknown phase " + phase->dump());
  }
  out.contains = json.value("contains", "");
  return out;
}

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::string utc(std::int64_t unix_ms) {
  const std::time_t seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return fmt::format("{} ms", unix_ms);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", parts);
}

}  // namespace kvcts::store
