#include "tools/sabotage/saboteurs.hpp"

#include <algorithm>
#include <utility>

namespace kvcts::sabotage {

namespace {

bool replaces_engine(const Saboteur& s) { return s.kind == "transport" || s.kind == "writer"; }

nlohmann::json engine_options(const Saboteur& saboteur, const ResolvedCase& c) {
  nlohmann::json options = saboteur.options;
  options["dtype"] = layout::name(c.groups.at(0).producer.scheme.data);  // the dtype that converting code gets
  return options;
}

/// Late writes come after the comparison, while memory is watched.
void watch(const Saboteur& saboteur, ResolvedCase& c) {
  c.settle_ms = std::max(c.settle_ms, 3 * saboteur.options.value("delay_us", std::int64_t{0}) / 1000);
}

}  // namespace

bool fits(const Saboteur& saboteur, const ResolvedCase& c) {
  if (c.groups.empty()) return false;
  // Correct code must PASS: a case that expects something else shows nothing.
  if (std::any_of(c.expected.begin(), c.expected.end(), [](const Expected& e) { return e.outcome != Outcome::pass; }))
    return false;
  if (saboteur.kind == "reader") return !c.reader.name.empty() && c.reader.kind == "flashinfer-decode";
  if (c.connector.kind == "none" || !c.reader.name.empty()) return false;  // what a reader makes of wrong bytes adds nothing
  if (!replaces_engine(saboteur))
    return c.connector.kind == "reference" && (c.engine.name == "memcpy" || c.engine.name == "shm");
  return c.engine.name == "memcpy" || c.engine.name == "shm";
}

void put_into(const Saboteur& saboteur, ResolvedCase& c) {
  if (saboteur.kind == "reader") {
    c.reader.options["sabotage"] = saboteur.options;
  } else if (replaces_engine(saboteur)) {
    c.engine.plugin = "kvcts_engine_saboteur";
    c.engine.options = engine_options(saboteur, c);
  } else {
    c.connector.options["sabotage"] = saboteur.options;
  }
  watch(saboteur, c);
}

void put_in_front(const Saboteur& saboteur, ResolvedCase& c) {
  if (!replaces_engine(saboteur)) return put_into(saboteur, c);
  c.engine.environment["KVCTS_FRONT_OF"] = std::exchange(c.engine.plugin, "kvcts_engine_front");
  const nlohmann::json options = engine_options(saboteur, c);
  for (const auto& [key, value] : options.items()) c.engine.options["front." + key] = value;
  watch(saboteur, c);
}

}  // namespace kvcts::sabotage
