#include "tools/sabotage/fault_injectors.hpp"

#include <algorithm>
#include <utility>

namespace kvcts::sabotage {

namespace {

bool replaces_engine(const FaultInjector& s) { return s.kind == "transport" || s.kind == "writer"; }

nlohmann::json engine_options(const FaultInjector& injector, const ResolvedCase& c) {
  nlohmann::json options = injector.options;
  options["dtype"] = layout::name(c.groups.at(0).producer.scheme.data);  // the dtype that converting code gets
  return options;
}

/// Late writes come after the comparison, while memory is watched.
void watch(const FaultInjector& injector, ResolvedCase& c) {
  c.settle_ms = std::max(c.settle_ms, 3 * injector.options.value("delay_us", std::int64_t{0}) / 1000);
}

}  // namespace

bool fits(const FaultInjector& injector, const ResolvedCase& c) {
  if (c.groups.empty()) return false;
  // Correct code must PASS: a case that expects something else shows nothing.
  if (std::any_of(c.expected.begin(), c.expected.end(), [](const Expected& e) { return e.outcome != Outcome::pass; }))
    return false;
  if (injector.kind == "reader") return !c.reader.name.empty() && c.reader.kind == "flashinfer-decode";
  if (c.connector.kind == "none" || !c.reader.name.empty()) return false;  // what a reader makes of wrong bytes adds nothing
  if (!replaces_engine(injector))
    return c.connector.kind == "reference" && (c.engine.name == "memcpy" || c.engine.name == "shm");
  return c.engine.name == "memcpy" || c.engine.name == "shm";
}

void put_into(const FaultInjector& injector, ResolvedCase& c) {
  if (injector.kind == "reader") {
    c.reader.options["sabotage"] = injector.options;
  } else if (replaces_engine(injector)) {
    c.engine.plugin = "kvcts_engine_saboteur";
    c.engine.options = engine_options(injector, c);
  } else {
    c.connector.options["sabotage"] = injector.options;
  }
  watch(injector, c);
}

void put_proxy_into(const FaultInjector& injector, ResolvedCase& c) {
  if (!replaces_engine(injector)) return put_into(injector, c);
  c.engine.environment["KVCTS_FRONT_OF"] = std::exchange(c.engine.plugin, "kvcts_engine_front");
  const nlohmann::json options = engine_options(injector, c);
  for (const auto& [key, value] : options.items()) c.engine.options["front." + key] = value;
  watch(injector, c);
}

}  // namespace kvcts::sabotage
