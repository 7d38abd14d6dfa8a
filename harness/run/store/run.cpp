#include "run/store/run.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "run/store/error.hpp"

namespace kvcts::store {

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
